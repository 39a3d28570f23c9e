"""Runs on texts by word, byte and byte pair: training, scoring, sampling, another tokeniser."""

import json
import math

import pytest

from lmzoo.data.corpus import open_corpus
from tests.cli.run_lmzoo import run_lmzoo
from tests.data.test_tokenisers import TEXT, tokeniser

PHRASE = "the cat sees 3 mäuse"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def train(lmzoo, text, row="gru", **fields):
    settings = [f"corpus.{name}={value}" for name, value in fields.items()]
    options = [item for setting in settings for item in ("--set", setting)]
    arguments = [row, "--corpus", f"stream:{text}", "--epochs", 1, "--out", text.parent / "runs"]
    size = () if row == "ngram_count" else ("--set", "model.width=4")
    return lmzoo("train", *arguments, "--set", "corpus.block=24", *size, *options)


@pytest.mark.parametrize("unit", ["char", "word", "byte", "bpe"])
def test_a_run_scores_and_continues_a_text(lmzoo, text, unit):
    fields = {"unit": unit, **({"vocab": 290} if unit == "bpe" else {})}
    assert train(lmzoo, text, **fields)[0] == 0
    runs = ("--runs", text.parent / "runs")
    code, out, err = lmzoo("score", "gru", PHRASE, "--json", *runs)
    assert code == 0
    assert "also stand in training" in err
    (scored,) = json.loads(out)
    vocabulary = open_corpus(
        {"name": "stream", "path": str(text), "block": 24, **fields}
    ).vocabulary
    assert scored["tokens"] == vocabulary.split(PHRASE)
    code, out, _ = lmzoo("sample", "gru", "--prefix", "the cat", "--count", 2, *runs)
    assert code == 0
    assert all(line.startswith("the cat") for line in out.splitlines()[:1])


@pytest.mark.parametrize("unit", ["char", "word", "byte", "bpe"])
@pytest.mark.parametrize("order", [1, 5])
def test_count_models_report_perplexity_and_bits_of_the_raw_text(
    lmzoo, text, unit, order, tmp_path
):
    fields = {"unit": unit, **({"vocab": 290} if unit == "bpe" else {})}
    arguments = ("--set", f"model.order={order}")
    settings = [item for k, v in fields.items() for item in ("--set", f"corpus.{k}={v}")]
    out = tmp_path / "runs"
    code, shown, _ = lmzoo(
        "train", "ngram_count", "--corpus", f"stream:{text}", "--set", "corpus.block=24",
        "--epochs", 1, "--out", out, *arguments, *settings,
    )  # fmt: skip
    assert code == 0
    (records,) = out.glob("*/records.ndjson")
    events = [json.loads(line) for line in records.read_text().splitlines()]
    (test,) = [event for event in events if event["event"] == "test"]
    nats = test["token"] * test["tokens"]
    assert f"perplexity {math.exp(test['token']):.2f}" in shown
    assert f"{nats / math.log(2) / test['characters']:.4f} bits per character" in shown
    assert f"{nats / math.log(2) / test['bytes']:.4f} per byte" in shown
    assert f"perplexity per word {math.exp(nats / test['words']):.2f}" in shown


def test_a_run_with_another_tokeniser_is_refused(lmzoo, text):
    path = text.parent / "tokenizer.json"
    path.write_text(tokeniser("bpe", vocab=290).vocabulary.json)
    assert train(lmzoo, text, unit="bpe", tokenizer=path)[0] == 0
    runs = ("--runs", text.parent / "runs")
    assert lmzoo("score", "gru", PHRASE, *runs)[0] == 0
    (config,) = (text.parent / "runs").glob("*/config.json")
    before = json.loads(config.read_text())["corpus"]["tokenizer_sha256"]
    path.write_text(tokeniser("bpe", vocab=280).vocabulary.json)
    code, _, err = lmzoo("score", "gru", PHRASE, *runs)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert str(path) in err
    assert before[:12] in err
    assert "another tokeniser" in err
    assert train(lmzoo, text, unit="bpe", tokenizer=path)[0] == 0  # another run
    assert len(list((text.parent / "runs").glob("*/config.json"))) == 2


def test_a_run_whose_trained_encoding_would_differ_is_refused(lmzoo, text):
    assert train(lmzoo, text, unit="bpe", vocab=290)[0] == 0
    text.write_text(TEXT.replace("dog", "owl"), encoding="utf-8")
    code, _, err = lmzoo("score", "gru", PHRASE, "--runs", text.parent / "runs")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "not the one that the run was trained on" in err


def test_the_command_without_the_package_exits_with_2(text, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    code = run_lmzoo("train", "gru", "--corpus", f"stream:{text}", "--set", "corpus.unit=bpe")
    error = capsys.readouterr().err
    assert (code, len(error.strip().splitlines())) == (2, 1)
    assert "pip install tokenizers" in error
