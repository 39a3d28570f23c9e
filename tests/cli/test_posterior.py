"""`lmzoo posterior`: posteriors and priors of latents; opening of runs."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.train.trained import load_run
from tests.cli.run_lmzoo import run_lmzoo

LINES = [f"{who} {does} {what}" for who in ("a", "the") for does in ("man", "dog", "cat")
         for what in ("runs", "sits", "sleeps a lot")] * 2  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs of three rows, trained for one epoch."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "own.txt"
    text.write_text("\n".join(LINES))
    runs = {}
    for name in ("slot_ngram", "gru_mixture", "lstm_lm"):
        small = ["--set", "corpus.length=8", "--set", "model.width=4"]
        options = ["--corpus", f"text:{text}", "--epochs", 1, "--out", folder / name]
        assert run_lmzoo("train", name, *options, *small) == 0
        (runs[name],) = (folder / name).iterdir()
    return runs


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:])


@pytest.mark.parametrize("name", ["slot_ngram", "gru_mixture"])
def test_posteriors_are_normalised_and_plotted(name: str, runs: dict[str, Path]) -> None:
    assert run_lmzoo("posterior", runs[name], "--sentences", 2) == 0
    out = runs[name] / "posterior"
    prior = {"prior.png"} if name != "gru_mixture" else set()
    pictures = {"sentence_1.png", "sentence_2.png", *prior}
    assert {path.name for path in out.iterdir()} == {"posterior.json", *pictures}
    assert all(min(png_size(out / picture)) > 200 for picture in pictures)
    facts = json.loads((out / "posterior.json").read_text())
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
        slots, values, positions = torch.tensor(facts["prior"]["probability"]).shape
        assert (slots, positions) == ((4, 7) if name == "slot_ngram" else (1, 1))
        assert values == len(facts["prior"]["values"])


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
