"""`lmzoo posterior`: latents, attention maps and segment boundaries; opening of runs."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.inspect.posterior import attention_maps, boundaries
from lmzoo.train.trained import load_run
from tests.cli.run_lmzoo import run_lmzoo

LINES = [f"{who} {does} {what}" for who in ("a", "the") for does in ("man", "dog", "cat")
         for what in ("runs", "sits", "sleeps a lot")] * 2  # fmt: skip


PAIRS = [f"{line}\t{' '.join(reversed(line.split()))}" for line in LINES]


def train(folder: Path, name: str, *settings: str, kind: str = "text") -> Path:
    """Train a row for one epoch on sentences or pairs and return the folder of its run."""
    text = folder / f"{kind}.txt"
    text.write_text("\n".join(PAIRS if kind == "pairs" else LINES))
    fields = [word for field in ("corpus.length=8", *settings) for word in ("--set", field)]
    options = ["--corpus", f"{kind}:{text}", "--epochs", 1, "--out", folder / name]
    assert run_lmzoo("train", name, *options, *fields) == 0
    (run,) = (folder / name).iterdir()
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs of three rows."""
    folder = tmp_path_factory.mktemp("runs")
    rows = ("slot_ngram", "gru_mixture", "lstm_lm")
    return {name: train(folder, name, "model.width=4") for name in rows}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def read_facts(folder: Path, stem: str) -> dict:
    """Check that the pictures can be seen, and return the content of the JSON file."""
    for picture in folder.glob("*.png"):
        width, height = struct.unpack(">II", picture.read_bytes()[16:24])
        assert (width > 200, height > 100) == (True, True)
    return json.loads((folder / f"{stem}.json").read_text())


@pytest.mark.parametrize("name", ["slot_ngram", "gru_mixture"])
def test_posteriors_are_normalised_and_plotted(name: str, runs: dict[str, Path]) -> None:
    assert run_lmzoo("posterior", runs[name], "--sentences", 2) == 0
    out = runs[name] / "posterior"
    prior = {"prior.png"} if name == "slot_ngram" else set()
    pictures = {"sentence_1.png", "sentence_2.png", *prior}
    assert names(out) == {"posterior.json", *pictures}
    facts = read_facts(out, "posterior")
    assert facts["row"] == name
    assert len(facts["sentences"]) == 2
    for sentence in facts["sentences"]:
        assert sentence["axes"] == ["value", "token"]
        table = torch.tensor(sentence["probability"])
        assert table.shape == (len(sentence["values"]), len(sentence["tokens"]))
        torch.testing.assert_close(table.sum(0), torch.ones(table.shape[1]))
        # The tokens of the axis are those of the sentence, in order.
        words = [token.partition(" ")[2] for token in sentence["tokens"]]
        assert " ".join(words) == f"{sentence['sentence']} <end>"
    assert (facts["prior"] is None) == (not prior)
    if prior:
        shape = torch.tensor(facts["prior"]["probability"]).shape
        assert shape == (4, len(facts["prior"]["values"]), 7)  # slots, values, positions


def test_invalid_input_gives_one_line(runs: dict[str, Path], tmp_path: Path, refused) -> None:
    out, slots = ("--out", tmp_path / "out"), runs["slot_ngram"]
    long = "--text has 7 tokens; the limit of text is 6"
    for folder, options, message in (
        (runs["lstm_lm"], [], "recurrent_lm has no discrete latent, attention map or boundary"),
        (slots, ["--text", "a unicorn runs"], "'unicorn'"),
        (slots, ["--text", "a <pad> runs"], "'<pad>'"),
        (slots, ["--text", " "], "--text is empty"),
        (slots, ["--text", "a man a man a man a"], long),
        (tmp_path / "none", [], "is not the folder of a trained run"),
    ):
        assert message in refused("posterior", folder, *options, *out)
    assert not (tmp_path / "out").exists()


def test_a_run_is_opened_with_its_best_weights_and_its_corpus(runs, tmp_path: Path) -> None:
    copy = shutil.copytree(runs["slot_ngram"], tmp_path / "run")
    file = copy / "checkpoint.pt"
    state = torch.load(file, weights_only=True)
    state["best"]["weights"]["gate.bias"] += 1
    torch.save(state, file)
    trained = load_run(copy)
    assert trained.row_name == "slot_ngram"
    assert trained.model.gate.bias.equal(state["best"]["weights"]["gate.bias"])
    assert not trained.model.training
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"checkpoint\.pt is damaged \(BadZipFile\)"):
        load_run(copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "fingerprint": "0"}))
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        load_run(copy)
    del config["crc"]
    (copy / "config.json").write_text(json.dumps({**config, "fingerprint": "0"}))
    with pytest.raises(UserError, match="not the one that the run was trained on"):
        load_run(copy)


def test_a_decoder_has_attention_maps_and_a_mixture_has_a_posterior_too(tmp_path: Path) -> None:
    sizes = ("model.width=8", "model.attention.heads=2", "model.emission.components=3")
    folder = train(tmp_path, "gpt_mixture", *sizes)
    assert run_lmzoo("posterior", folder, "--sentences", 2) == 0
    out = folder / "posterior"
    plots = {f"{stem}_{n}.png" for stem in ("attention", "sentence") for n in (1, 2)}
    assert names(out) == {"attention.json", "posterior.json", *plots}
    facts = read_facts(out, "attention")
    assert facts["row"] == "gpt_mixture"
    run = load_run(folder)
    vocabulary, part = run.corpus.vocabulary, run.corpus.test
    for number, sentence in enumerate(facts["sentences"]):
        ids = part.tokens[number, : int(part.lengths[number])].tolist()
        assert sentence["sentence"] == vocabulary.decode(ids)
        assert sentence["axes"] == ["layer", "head", "token that looks", "token looked at"]
        looking = [name.partition(" ")[2] for name in sentence["looking"]]
        assert looking == [vocabulary.tokens[i] for i in ids[:-1]]
        weight = torch.tensor(sentence["weight"])
        assert weight.shape[1:] == (2, len(ids) - 1, len(sentence["looked_at"]))
        torch.testing.assert_close(weight.sum(-1), torch.ones(weight.shape[:-1]))
        assert not weight.triu(1).any()
        expected = attention_maps(run.model, ids, [vocabulary.tokens[i] for i in ids]).weight
        torch.testing.assert_close(weight, expected)


def test_a_row_with_a_source_has_attention_maps_over_the_source(tmp_path: Path, refused) -> None:
    folder = train(tmp_path, "seq2seq_dot_attention", "model.width=8", kind="pairs")
    assert run_lmzoo("posterior", folder, "--sentences", 1) == 0
    assert names(folder / "posterior") == {"attention.json", "attention_1.png"}
    (sentence,) = read_facts(folder / "posterior", "attention")["sentences"]
    before, arrow, after = sentence["sentence"].partition("  →  ")
    assert arrow
    assert after.split() == before.split()[::-1]
    assert [name.split()[1] for name in sentence["looked_at"]] == [*before.split(), "<end>"]
    assert [name.split()[1] for name in sentence["looking"]] == [*after.split(), "<end>"]
    weight = torch.tensor(sentence["weight"])
    length = len(before.split()) + 1
    assert weight.shape == (1, 1, length, length)
    torch.testing.assert_close(weight.sum(-1), torch.ones(1, 1, length))
    assert "give both --text and --source" in refused("posterior", folder, "--text", "cat one")


def test_a_hierarchical_lstm_has_segment_boundaries(tmp_path: Path, refused) -> None:
    folder = train(tmp_path, "hm_lstm", "model.width=8", "model.cell.depth=3")
    options = ["--text", "the dog runs"]
    assert run_lmzoo("posterior", folder, *options) == 0
    assert names(folder / "posterior") == {"boundaries.json", "boundaries_1.png"}
    (sentence,) = read_facts(folder / "posterior", "boundaries")["sentences"]
    assert sentence["axes"] == ["layer", "token"]
    assert sentence["tokens"] == ["0 <start>", "1 the", "2 dog", "3 runs"]
    assert sentence["layers"] == ["layer 1", "layer 2"]
    run = load_run(folder)
    tokens = ["<start>", "the", "dog", "runs", "<end>"]
    expected = boundaries(run.model, run.corpus.vocabulary.encode(tokens), tokens).ended
    assert sentence["ended"] == expected.int().tolist()
    said = refused("posterior", folder, *options, "--source", "a dog")
    assert "hm_lstm reads no source" in said
