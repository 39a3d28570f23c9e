"""`lmzoo train`: its last lines, the report of a model, and a schedule of the learning rate."""

import contextlib
import json
import math
import re

import pytest
import torch

from lmzoo import zoo
from lmzoo.cli.train import describe_score
from lmzoo.contract import MODELS, Score, Task
from lmzoo.lab.store.records import CONFIG
from lmzoo.train.evaluate import compute_losses
from lmzoo.train.trainer import Training
from tests.tiny import FINE, batch, row_names, tiny


@pytest.fixture
def options(tmp_path):
    """Options of a short training on a small text."""
    path = tmp_path / "text.txt"
    path.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    corpus = ["--corpus", f"text:{path}", "--set", "corpus.length=6"]
    return [*corpus, "--out", tmp_path / "runs", "--epochs", 1]


def test_only_densities_have_a_perplexity():
    # Two tokens with probability ½ each, and two with ⅛.
    test_losses = compute_losses(
        torch.tensor([2.0, 6.0]).double() * math.log(2), torch.tensor([2, 2])
    )
    descriptions = {name: describe_score(tiny(name), test_losses) for name in row_names()}
    for name, text in descriptions.items():
        score = MODELS[zoo.row(name).model].score
        density = score in (Score.EXACT, Score.CONDITIONAL, Score.LOWER_BOUND)
        assert ("no perplexity" in text) is not density, name
        assert ("perplexity" in text and "4.00" in text) is density, name
        assert ("at most" in text) is (score is Score.LOWER_BOUND), name
    leaking = zoo.build(zoo.config("DLM46", norm="time_std"), Task(vocab=5, length=4))
    assert describe_score(leaking, test_losses) == "no perplexity: the model reads later tokens"


def test_the_last_line_describes_the_score(lmzoo, options):
    code, out, _ = lmzoo("train", "word2vec_cbow", *options, "--set", "model.width=4")
    assert code == 0
    assert "the training objective" in " ".join(out.split())
    assert not re.search(r"perplexity \d", out)


def test_a_long_epoch_says_how_far_it_is(lmzoo, options, monkeypatch):
    states = []
    seen = []
    add_record = Training.add_record

    @contextlib.contextmanager
    def said(what, state):
        states.append(state)
        yield

    def look(training, record):
        seen.append(states[0]())
        add_record(training, record)

    monkeypatch.setattr("lmzoo.cli.train.said", said)
    monkeypatch.setattr(Training, "add_record", look)
    lmzoo("train", "gru", *options, "--set", "model.width=4", "--set", "recipe.batch=12")
    # Of four batches, the last one had begun.
    assert seen == [" 0.750 of 1 epochs"]


def test_nce_reports_its_normaliser():
    model = tiny("nce").double()
    tokens, lengths = batch(model.task)
    with torch.no_grad():
        log_z = [
            model.unnormalised_scores(tokens[b : b + 1, :t])[0, -1].exp().sum().log()
            for b in range(len(tokens))
            for t in range(1, int(lengths[b]))
        ]
        report = model.report(tokens, lengths)
    expected = torch.stack(log_z)
    assert report["log Z"] == pytest.approx(expected.mean().item(), abs=FINE)
    spread = expected.std(correction=0).item()
    assert report["spread of log Z"] == pytest.approx(spread, abs=FINE)
    assert spread > 0


def test_a_diverged_run_exits_with_1_and_advice_that_fits(lmzoo, options, tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"a b w{i}\nw{i} b a\n" for i in range(40)))
    for row, field, advice in (
        ("DLM46", "recipe.lr=1e9", "lower recipe.lr"),
        ("ngram_count", "model.smoothing=none", "probability 0"),
    ):
        words = [row, *options, "--set", field]
        words += ["--set", "model.width=4"] if row == "DLM46" else []
        for _ in range(2):  # the second time, nothing is trained
            code, out, _ = lmzoo("train", *words)
            assert (code, advice in out) == (1, True), out
            assert ("recipe.lr" in out) is (row == "DLM46")


def test_settings_that_no_machine_holds_are_one_line(refused, options, tmp_path):
    fields = ("recipe.lr=1e400", "recipe.lr=NaN", "model.width=1e9", "model.layers=1e8")
    for field in (*fields, "corpus.length=1e12"):
        assert refused("train", "gru", *options, "--set", field)
    assert not (tmp_path / "runs").exists()


def test_the_rate_falls_over_the_budget(lmzoo, options, tmp_path):
    small = ("train", "gru", *options[:-2], "--set", "model.width=4")
    for epochs in (1, 2, 2):
        words = ("--set", "recipe.schedule=cosine", "--epochs", epochs)
        assert lmzoo(*small, *words)[0] == 0
    configs = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob(f"*/{CONFIG}")]
    assert sorted(config["recipe"]["schedule_epochs"] for config in configs) == [1, 2]
