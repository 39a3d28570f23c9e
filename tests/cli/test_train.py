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
    return ["--corpus", f"text:{path}", "--set", "corpus.length=6", "--out", tmp_path / "runs"]


@pytest.fixture
def once(options):
    return options + ["--epochs", 1]


@pytest.fixture
def perplexity_4():
    """Losses of two tokens with probability ½ each, and of two with ⅛."""
    nats = torch.tensor([2.0, 6.0]).double() * math.log(2)
    return compute_losses(nats, torch.tensor([2, 2]))


DENSITIES = (Score.EXACT, Score.CONDITIONAL, Score.LOWER_BOUND)


@pytest.mark.parametrize("name", row_names())
def test_only_densities_have_a_perplexity(name, perplexity_4):
    text = describe_score(tiny(name), perplexity_4)
    score = MODELS[zoo.row(name).model].score
    if score in DENSITIES:
        assert "no perplexity" not in text
        assert "perplexity" in text
        assert "4.00" in text
    else:
        assert "no perplexity" in text
        assert "4.00" not in text
    # The probability of a lower bound is at least that.
    assert ("at most" in text) is (score is Score.LOWER_BOUND)


def test_a_model_that_reads_later_tokens_has_no_perplexity(perplexity_4):
    config = zoo.config("DLM46", norm="time_std")
    leaking = zoo.build(config, Task(vocab=5, length=4))
    text = describe_score(leaking, perplexity_4)
    assert text == "no perplexity: the model reads later tokens"


def test_the_last_line_describes_the_score(printed, once):
    out = printed("train", "word2vec_cbow", once, "--set", "model.width=4")
    assert "the training objective" in " ".join(out.split())
    # An objective is no probability.
    assert not re.search(r"perplexity \d", out)


def test_a_long_epoch_says_how_far_it_is(lmzoo, once, monkeypatch):
    states = []
    seen = []
    add_record = Training.add_record

    @contextlib.contextmanager
    def said(what, state):
        states.append(state)
        yield

    def look(training, record):
        # The state of the training, when an epoch is recorded.
        seen.append(states[0]())
        add_record(training, record)

    monkeypatch.setattr("lmzoo.cli.train.said", said)
    monkeypatch.setattr(Training, "add_record", look)
    lmzoo("train", "gru", once, "--set", "model.width=4", "--set", "recipe.batch=12")
    # Of four batches, the last one had begun.
    assert seen == [" 0.750 of 1 epochs"]


def test_nce_reports_its_normaliser():
    model = tiny("nce").double()
    tokens, lengths = batch(model.task)
    log_z = []
    with torch.no_grad():
        for row, length in zip(tokens, lengths.tolist(), strict=True):
            for t in range(1, length):
                scores = model.unnormalised_scores(row[None, :t])
                log_z.append(scores[0, -1].logsumexp(-1))
        report = model.report(tokens, lengths)
    expected = torch.stack(log_z)
    spread = expected.std(correction=0).item()
    assert report["log Z"] == pytest.approx(expected.mean().item(), abs=FINE)
    assert report["spread of log Z"] == pytest.approx(spread, abs=FINE)
    assert spread > 0


@pytest.fixture
def rare_words(options, tmp_path):
    """Replace the text of the options by one with many words that occur twice."""
    lines = [f"a b w{i}\nw{i} b a\n" for i in range(40)]
    (tmp_path / "text.txt").write_text("".join(lines))


@pytest.mark.usefixtures("rare_words")
@pytest.mark.parametrize("already", [False, True])
def test_a_diverged_run_exits_with_1_and_the_advice_to_lower_its_rate(lmzoo, once, already):
    words = ["train", "DLM46", "--set", "recipe.lr=1e9", "--set", "model.width=4"] + once
    if already:
        # Now nothing is trained.
        lmzoo(words)
    code, out, _ = lmzoo(words)
    assert code == 1
    assert "lower recipe.lr" in out


@pytest.mark.usefixtures("rare_words")
@pytest.mark.parametrize("already", [False, True])
def test_counts_that_give_a_word_no_probability_exit_with_1(lmzoo, once, already):
    words = ["train", "ngram_count", "--set", "model.smoothing=none"] + once
    if already:
        lmzoo(words)
    code, out, _ = lmzoo(words)
    assert code == 1
    assert "probability 0" in out
    assert "recipe.lr" not in out


HUGE = ["recipe.lr=1e400", "recipe.lr=NaN", "model.width=1e9", "model.layers=1e8"]
HUGE.append("corpus.length=1e12")


@pytest.mark.parametrize("field", HUGE)
def test_settings_that_no_machine_holds_are_one_line(refused, once, tmp_path, field):
    assert refused("train", "gru", once, "--set", field)
    assert not (tmp_path / "runs").exists()


def test_the_rate_falls_over_the_budget(printed, options, tmp_path):
    words = ["train", "gru", "--set", "recipe.schedule=cosine", "--set", "model.width=4"] + options
    # A run of two epochs is not one of a single epoch that goes on.
    for epochs in (1, 2, 2):
        printed(words, "--epochs", epochs)
    lengths = []
    for path in (tmp_path / "runs").glob(f"*/{CONFIG}"):
        config = json.loads(path.read_text())
        lengths.append(config["recipe"]["schedule_epochs"])
    assert sorted(lengths) == [1, 2]
