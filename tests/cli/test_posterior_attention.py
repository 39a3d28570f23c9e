"""`lmzoo posterior`: attention maps and segment boundaries."""

import json
import struct
from pathlib import Path

import pytest
import torch

from lmzoo.inspect.posterior import attention_maps, boundaries
from lmzoo.train.trained import load_run

LINES = [f"{who} {does}" for who in ("a man", "the dog", "one cat") for does in ("runs", "sits")]
PAIRS = [f"{line}\t{' '.join(reversed(line.split()))}" for line in LINES]


@pytest.fixture
def train(lmzoo, tmp_path):
    """Train a row for one epoch on sentences or pairs and return the folder of its run."""

    def call(name: str, *settings: str, kind: str = "text") -> Path:
        path = tmp_path / f"{kind}.txt"
        path.write_text("\n".join((PAIRS if kind == "pairs" else LINES) * 5))
        small = ["model.width=8", "corpus.length=8", *settings]
        fields = [word for field in small for word in ("--set", field)]
        out = tmp_path / name
        options = ["--corpus", f"{kind}:{path}", "--epochs", "1", "--out", str(out)]
        assert lmzoo("train", name, *options, *fields)[0] == 0
        (folder,) = out.iterdir()
        return folder

    return call


def read_facts(folder: Path, stem: str, count: int) -> dict:
    """Check the PNG files and return the contents of the JSON file."""
    for number in range(1, count + 1):
        head = (folder / f"{stem}_{number}.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:])
        assert width > 200
        assert height > 100
    return json.loads((folder / f"{stem}.json").read_text())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_decoder_has_attention_maps_and_a_mixture_has_a_posterior_too(lmzoo, train) -> None:
    folder = train("gpt_mixture", "model.attention.heads=2", "model.emission.components=3")
    assert lmzoo("posterior", str(folder), "--sentences", "2")[0] == 0
    out = folder / "posterior"
    plots = {f"{stem}_{n}.png" for stem in ("attention", "sentence") for n in (1, 2)}
    assert names(out) == {"attention.json", "posterior.json", *plots}
    facts = read_facts(out, "attention", 2)
    assert facts["row"] == "gpt_mixture"
    run = load_run(folder)
    vocabulary, part = run.corpus.vocabulary, run.corpus.test
    for number, sentence in enumerate(facts["sentences"]):
        ids = part.tokens[number, : int(part.lengths[number])].tolist()
        assert sentence["sentence"] == vocabulary.decode(ids)
        assert sentence["axes"] == ["layer", "head", "token that looks", "token looked at"]
        assert [name.partition(" ")[2] for name in sentence["looking"]] == [
            vocabulary.tokens[i] for i in ids[:-1]
        ]
        weight = torch.tensor(sentence["weight"])
        assert weight.shape[1:] == (2, len(ids) - 1, len(sentence["looked_at"]))
        torch.testing.assert_close(weight.sum(-1), torch.ones(weight.shape[:-1]))
        assert not weight.triu(1).any()
        expected = attention_maps(run.model, ids, [vocabulary.tokens[i] for i in ids]).weight
        torch.testing.assert_close(weight, expected)


def test_a_row_with_a_source_has_attention_maps_over_the_source(lmzoo, refused, train) -> None:
    folder = train("seq2seq_dot_attention", kind="pairs")
    assert lmzoo("posterior", str(folder), "--sentences", "1")[0] == 0
    assert names(folder / "posterior") == {"attention.json", "attention_1.png"}
    (sentence,) = read_facts(folder / "posterior", "attention", 1)["sentences"]
    before, arrow, after = sentence["sentence"].partition("  →  ")
    assert arrow
    assert after.split() == before.split()[::-1]
    assert [name.split()[1] for name in sentence["looked_at"]] == [*before.split(), "<end>"]
    assert [name.split()[1] for name in sentence["looking"]] == [*after.split(), "<end>"]
    weight = torch.tensor(sentence["weight"])
    assert weight.shape == (1, 1, 4, 4)
    torch.testing.assert_close(weight.sum(-1), torch.ones(1, 1, 4))
    error = refused("posterior", folder, "--text", "cat one")
    assert "give both --text and --source" in error


def test_a_hierarchical_lstm_has_segment_boundaries(lmzoo, refused, train) -> None:
    folder = train("hm_lstm", "model.cell.depth=3")
    options = ["--text", "the dog runs"]
    assert lmzoo("posterior", str(folder), *options)[0] == 0
    assert names(folder / "posterior") == {"boundaries.json", "boundaries_1.png"}
    (sentence,) = read_facts(folder / "posterior", "boundaries", 1)["sentences"]
    assert sentence["axes"] == ["layer", "token"]
    assert sentence["tokens"] == ["0 <start>", "1 the", "2 dog", "3 runs"]
    assert sentence["layers"] == ["layer 1", "layer 2"]
    run = load_run(folder)
    tokens = ["<start>", "the", "dog", "runs", "<end>"]
    expected = boundaries(run.model, run.corpus.vocabulary.encode(tokens), tokens).ended
    assert sentence["ended"] == expected.int().tolist()

    error = refused("posterior", folder, *options, "--source", "a dog")
    assert "hm_lstm reads no source" in error
