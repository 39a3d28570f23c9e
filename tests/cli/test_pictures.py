"""`python -m lmzoo posterior` of rows that attend, and of one that finds segments."""

import json
import struct
from pathlib import Path

import pytest
import torch

from lmzoo.inspect.attention_maps import maps
from lmzoo.inspect.boundaries import boundaries
from lmzoo.train.trained import open_run

LINES = [f"{who} {does}" for who in ("a man", "the dog", "one cat") for does in ("runs", "sits")]
PAIRS = [f"{line}\t{' '.join(reversed(line.split()))}" for line in LINES]


@pytest.fixture
def trained(lmzoo, tmp_path):
    """A row, trained for one epoch on sentences or on pairs: its run's folder."""

    def call(name: str, *settings: str, kind: str = "text") -> Path:
        path = tmp_path / f"{kind}.txt"
        path.write_text("\n".join((PAIRS if kind == "pairs" else LINES) * 5))
        small = ["model.width=8", "corpus.length=8", *settings]
        fields = [word for field in small for word in ("--set", field)]
        out = tmp_path / name
        where = ["--corpus", f"{kind}:{path}", "--epochs", "1", "--out", str(out)]
        assert lmzoo("train", name, *where, *fields)[0] == 0
        (folder,) = out.iterdir()
        return folder

    return call


def shown(folder: Path, stem: str, count: int) -> dict:
    """The file of numbers, once the pictures beside it have been looked at."""
    for number in range(1, count + 1):
        head = (folder / f"{stem}_{number}.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:])
        assert width > 200
        assert height > 100
    return json.loads((folder / f"{stem}.json").read_text())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_decoder_shows_its_attention_and_a_mixture_its_component_too(lmzoo, trained) -> None:
    folder = trained("gpt_mixture", "model.attention.heads=2", "model.emission.components=3")
    assert lmzoo("posterior", str(folder), "--sentences", "2")[0] == 0
    out = folder / "posterior"
    each = {f"{stem}_{n}.png" for stem in ("attention", "sentence") for n in (1, 2)}
    assert names(out) == {"attention.json", "posterior.json", *each}
    told = shown(out, "attention", 2)
    assert told["row"] == "gpt_mixture"
    run = open_run(folder)
    vocabulary, part = run.corpus.vocabulary, run.corpus.test
    for number, one in enumerate(told["sentences"]):
        ids = part.tokens[number, : int(part.lengths[number])].tolist()
        assert one["sentence"] == vocabulary.decode(ids)
        assert one["axes"] == ["layer", "head", "token that looks", "token looked at"]
        assert [name.partition(" ")[2] for name in one["looking"]] == [
            vocabulary.tokens[i] for i in ids[:-1]
        ]
        weight = torch.tensor(one["weight"])
        assert weight.shape[1:] == (2, len(ids) - 1, len(one["looked_at"]))
        torch.testing.assert_close(weight.sum(-1), torch.ones(weight.shape[:-1]))
        assert not weight.triu(1).any()
        expected = maps(run.model, ids, [vocabulary.tokens[i] for i in ids]).weight
        torch.testing.assert_close(weight, expected)


def test_a_row_with_a_source_shows_what_was_looked_at_in_it(lmzoo, trained) -> None:
    folder = trained("seq2seq_dot_attention", kind="pairs")
    assert lmzoo("posterior", str(folder), "--sentences", "1")[0] == 0
    assert names(folder / "posterior") == {"attention.json", "attention_1.png"}
    (one,) = shown(folder / "posterior", "attention", 1)["sentences"]
    before, arrow, after = one["sentence"].partition("  →  ")
    assert arrow
    assert after.split() == before.split()[::-1]
    assert [name.split()[1] for name in one["looked_at"]] == [*before.split(), "<end>"]
    assert [name.split()[1] for name in one["looking"]] == [*after.split(), "<end>"]
    weight = torch.tensor(one["weight"])
    assert weight.shape == (1, 1, 4, 4)
    torch.testing.assert_close(weight.sum(-1), torch.ones(1, 1, 4))

    own = ["--text", "cat one", "--source", "one cat sits", "--out", str(folder / "own")]
    assert lmzoo("posterior", str(folder), *own)[0] == 0
    (one,) = shown(folder / "own", "attention", 1)["sentences"]
    assert one["sentence"] == "one cat sits  →  cat one"
    assert torch.tensor(one["weight"]).shape == (1, 1, 3, 4)
    for half in (own[:2], own[2:4]):
        code, said, err = lmzoo("posterior", str(folder), *half, "--out", str(folder / "none"))
        assert (code, said, err.count("\n")) == (2, "", 1)
        assert "--text and --source go together" in err
    assert not (folder / "none").exists()


def test_a_hierarchical_lstm_shows_the_ends_of_its_segments(lmzoo, trained) -> None:
    folder = trained("hm_lstm", "model.cell.depth=3")
    own = ["--text", "the dog runs"]
    assert lmzoo("posterior", str(folder), *own)[0] == 0
    assert names(folder / "posterior") == {"boundaries.json", "boundaries_1.png"}
    (one,) = shown(folder / "posterior", "boundaries", 1)["sentences"]
    assert one["axes"] == ["layer", "token"]
    assert one["tokens"] == ["0 <start>", "1 the", "2 dog", "3 runs"]
    assert one["layers"] == ["layer 1", "layer 2"]
    run = open_run(folder)
    tokens = ["<start>", "the", "dog", "runs", "<end>"]
    expected = boundaries(run.model, run.corpus.vocabulary.encode(tokens), tokens).ended
    assert one["ended"] == expected.int().tolist()

    code, said, err = lmzoo("posterior", str(folder), *own, "--source", "a dog")
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert "hm_lstm is given none" in err
