"""Runs on texts by word, byte and byte pair: training, scoring, sampling, another tokeniser."""

import json

import pytest

from lmzoo.data.corpus import open_corpus
from tests.data.test_tokenisers import TEXT

PHRASE = "the cat sees 3 mäuse"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def train(lmzoo, text, row="gru", out=None, order=None, **fields):
    settings = [f"corpus.{name}={value}" for name, value in {"block": 24, **fields}.items()]
    settings.append("model.width=4" if order is None else f"model.order={order}")
    options = [item for setting in settings for item in ("--set", setting)]
    out = out or text.parent / "runs"
    return lmzoo("train", row, "--corpus", f"stream:{text}", "--epochs", 1, "--out", out, *options)


UNITS = ({"unit": "char"}, {"unit": "word"}, {"unit": "byte"}, {"unit": "bpe", "vocab": 290})


def test_a_run_scores_and_continues_a_text(lmzoo, text):
    for fields in UNITS:
        runs = text.parent / fields["unit"]
        assert train(lmzoo, text, out=runs, **fields)[0] == 0
        code, out, err = lmzoo("score", "gru", PHRASE, "--json", "--runs", runs)
        assert (code, "also stand in training" in err) == (0, True)
        (scored,) = json.loads(out)
        corpus = open_corpus({"name": "stream", "path": str(text), "block": 24, **fields})
        assert scored["tokens"] == corpus.vocabulary.split(PHRASE)
        prefix = ("--prefix", "the cat", "--count", 2)
        code, out, _ = lmzoo("sample", "gru", *prefix, "--runs", runs)
        assert (code, out.startswith("the cat")) == (0, True)
