"""The last lines of `lmzoo train`: what the test loss is, and the report of the model."""

import math
import re

import pytest
import torch

from lmzoo import zoo
from lmzoo.cli.train import describe_score
from lmzoo.contract import MODELS, LanguageModel, Score, Task
from lmzoo.train.evaluate import compute_losses
from tests.laws.support import log_prob
from tests.tiny import CLOSE, FINE, batch, row_names, tiny


@pytest.fixture
def options(tmp_path):
    """Options of a short training on a small text."""
    path = tmp_path / "text.txt"
    path.write_text("a man runs\na dog sits\ntwo men run\n" * 20)
    return [
        "--corpus",
        f"text:{path}",
        "--set",
        "corpus.length=6",
        "--out",
        str(tmp_path / "runs"),
        "--epochs",
        "1",
    ]


def test_only_densities_have_a_perplexity() -> None:
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


@pytest.mark.parametrize(
    ("name", "description"),
    [("word2vec_cbow", "the training objective"), ("masked_lm", "a reconstruction")],
)
def test_the_last_line_describes_the_score(name: str, description: str, lmzoo, options) -> None:
    code, out, _ = lmzoo("train", name, *options, "--set", "model.width=4")
    assert code == 0
    assert description in " ".join(out.split())
    assert not re.search(r"perplexity \d", out)


def test_elmo_reports_both_directions(lmzoo, options) -> None:
    code, out, _ = lmzoo("train", "elmo", *options, "--set", "model.width=4")
    words = " ".join(out.split())
    assert code == 0
    assert re.search(
        r"on validation sequences: left to right \d\.\d{4}, right to left \d\.\d{4}$", words
    )


def test_the_report_of_elmo_has_the_losses_of_both_directions() -> None:
    model = tiny("elmo")
    tokens, lengths = batch(model.task)
    count = (lengths - 1).sum()
    with torch.no_grad():
        report = model.report(tokens, lengths)
        backward = -model.backward_log_prob(tokens, lengths).sum() / count
    assert report["left to right"] == pytest.approx(
        -log_prob(model, tokens, lengths).sum().item() / count.item(), abs=CLOSE
    )
    assert report["right to left"] == pytest.approx(backward.item(), abs=CLOSE)
    assert report["left to right"] != report["right to left"]


def test_nce_reports_its_normaliser() -> None:
    model = tiny("nce").double()
    tokens, lengths = batch(model.task)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.bias.fill_(2.0)
        report = model.report(tokens, lengths)
        # Every token has the unnormalised score e² in every context.
        assert report["log Z"] == pytest.approx(2 + math.log(3), abs=FINE)
        assert report["spread of log Z"] == pytest.approx(0, abs=FINE)
    model = tiny("nce").double()
    with torch.no_grad():
        log_z = [
            model.unnormalised_scores(tokens[b : b + 1, :t])[0, -1].exp().sum().log()
            for b in range(len(tokens))
            for t in range(1, int(lengths[b]))
        ]
        report = model.report(tokens, lengths)
    assert report["log Z"] == pytest.approx(torch.stack(log_z).mean().item(), abs=FINE)
    assert report["spread of log Z"] == pytest.approx(
        torch.stack(log_z).std(correction=0).item(), abs=FINE
    )


def test_other_models_have_an_empty_report() -> None:
    model = tiny("gru")
    assert type(model).report is LanguageModel.report
    assert model.report(*batch(model.task)) == {}


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("DLM46", "--set", "recipe.lr=1e9", "--set", "model.width=4"), "lower recipe.lr"),
        (("ngram_count", "--set", "model.smoothing=none"), "probability 0"),
    ],
)
def test_a_diverged_run_exits_with_1_and_advice_that_fits(words, advice, lmzoo, options, tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"a b w{i}\nw{i} b a\n" for i in range(40)))
    for _ in range(2):  # the second time, nothing is trained
        code, out, _ = lmzoo("train", words[0], *options, *words[1:])
        assert (code, advice in out) == (1, True), out
        assert (words[0] == "DLM46") is ("recipe.lr" in out)


@pytest.mark.parametrize(
    "field",
    [
        "recipe.lr=1e400",
        "recipe.lr=NaN",
        "model.width=1e9",
        "corpus.length=1e12",
        "model.layers=1e8",
    ],
)
def test_settings_that_no_machine_holds_are_one_line(field, lmzoo, options, tmp_path):
    code, _, err = lmzoo("train", "gru", *options, "--set", field)
    assert (code, err.count("\n")) == (2, 1), err
    assert not (tmp_path / "runs").exists()
