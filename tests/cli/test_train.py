"""What `train` says of its number, which is a perplexity only where it is a density's."""

import math
import re

import pytest
import torch

from lmzoo import zoo
from lmzoo.cli.train import meaning
from lmzoo.contract import MODELS, LanguageModel, Score, Task
from lmzoo.train.evaluate import losses
from tests.laws.ask import log_prob
from tests.tiny import CLOSE, FINE, batch, rows, tiny


@pytest.fixture
def text(tmp_path):
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


def test_only_a_density_has_a_perplexity() -> None:
    # Two tokens at ½ each, and two at ⅛.
    found = losses(torch.tensor([2.0, 6.0]).double() * math.log(2), torch.tensor([3, 3]))
    said = {name: meaning(tiny(name), found) for name in rows()}
    for name, words in said.items():
        score = MODELS[zoo.row(name).model].score
        density = score in (Score.EXACT, Score.CONDITIONAL, Score.LOWER_BOUND)
        assert ("no perplexity" in words) is not density, name
        assert ("perplexity" in words and "4.00" in words) is density, name
        assert ("at most" in words) is (score is Score.LOWER_BOUND), name
    leaking = zoo.build(zoo.config("DLM46", norm="time_std"), Task(vocab=5, length=4))
    assert meaning(leaking, found) == "no perplexity: it sees the future"


@pytest.mark.parametrize(
    ("name", "said"),
    [("word2vec_cbow", "the training objective"), ("masked_lm", "a reconstruction")],
)
def test_the_last_line_says_what_the_number_is(name: str, said: str, lmzoo, text) -> None:
    code, out, _ = lmzoo("train", name, *text, "--set", "model.width=4")
    assert code == 0
    assert said in " ".join(out.split())
    assert not re.search(r"perplexity \d", out)


def test_elmo_tells_of_both_directions(lmzoo, text) -> None:
    code, out, _ = lmzoo("train", "elmo", *text, "--set", "model.width=4")
    words = " ".join(out.split())
    assert code == 0
    assert re.search(
        r"on validation sequences: left to right \d\.\d{4}, right to left \d\.\d{4}$", words
    )


def test_reports_are_what_they_say() -> None:
    model = tiny("elmo")
    tokens, lengths = batch(model.task)
    count = (lengths - 1).sum()
    with torch.no_grad():
        told = model.report(tokens, lengths)
        backward = -model.backward_log_prob(tokens, lengths).sum() / count
    assert told["left to right"] == pytest.approx(
        -log_prob(model, tokens, lengths).sum().item() / count.item(), abs=CLOSE
    )
    assert told["right to left"] == pytest.approx(backward.item(), abs=CLOSE)
    assert told["left to right"] != told["right to left"]


def test_nce_tells_how_near_it_is_to_normalised() -> None:
    model = tiny("nce").double()
    tokens, lengths = batch(model.task)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.bias.fill_(2.0)
        told = model.report(tokens, lengths)
        # Every word at e² in every context.
        assert told["log Z"] == pytest.approx(2 + math.log(3), abs=FINE)
        assert told["spread of log Z"] == pytest.approx(0, abs=FINE)
    model = tiny("nce").double()
    with torch.no_grad():
        each = [
            model.unnormalised(tokens[b : b + 1, :t])[0, -1].exp().sum().log()
            for b in range(len(tokens))
            for t in range(1, int(lengths[b]))
        ]
        told = model.report(tokens, lengths)
    assert told["log Z"] == pytest.approx(torch.stack(each).mean().item(), abs=FINE)
    assert told["spread of log Z"] == pytest.approx(
        torch.stack(each).std(correction=0).item(), abs=FINE
    )


def test_most_models_have_nothing_to_add() -> None:
    model = tiny("gru")
    assert type(model).report is LanguageModel.report
    assert model.report(*batch(model.task)) == {}
