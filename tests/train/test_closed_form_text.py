"""Count models that read a text as one sequence, and choose their order on validation."""

import dataclasses
import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import START, Task
from lmzoo.data.blocks import cut_blocks, cut_windows
from lmzoo.data.corpus import Corpus
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.lab.study.study import Point
from lmzoo.models.count import MAX_ORDER
from lmzoo.train import closed_form
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from lmzoo.trainables.resolve import baselines
from tests.models.reference_kneser_ney import ReferenceKneserNey

V = 9
BLOCK = 5


def text(count: int, seed: int) -> torch.Tensor:
    """A text in which a token depends on the two before it, mostly."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [4, 5]
    draws = torch.rand(count, generator=generator)
    for draw in draws.tolist():
        rule = tokens[-1] + 2 * tokens[-2]
        # A quarter of the tokens break the rule.
        if draw < 0.25:
            rule += 1
        tokens.append(4 + rule % 5)
    return torch.tensor(tokens[2:])


TRAIN = text(400, 0)
VALID = text(90, 1)
TEST = text(80, 2)


def corpus(stride: int = BLOCK) -> Corpus:
    return Corpus(
        name="letters",
        vocabulary=Vocabulary(SPECIALS + tuple("abcde")),
        train=cut_blocks(TRAIN, BLOCK, 0),
        valid=cut_windows(VALID, BLOCK, stride),
        test=cut_windows(TEST, BLOCK, stride),
        unit="letter",
        source="",
        ends=False,
    )


def trained(order: int, data: Corpus, *, stream: bool = True) -> tuple[Training, float]:
    """Return a fitted model, and its validation loss."""
    config = zoo.config("ngram_count", order=order, stream=stream)
    model = zoo.build(config, data.task)
    training = Training(model, Recipe(), seed=0)
    (record,) = fit(training, data, 1)
    return training, record["valid_token"]


def sequence(text: torch.Tensor) -> tuple[int, ...]:
    """Return the whole text after <start>."""
    return (START,) + tuple(text.tolist())


def reference_loss(order: int, part: torch.Tensor) -> float:
    model = ReferenceKneserNey([sequence(TRAIN)], order, V)
    whole = sequence(part)
    loss = 0.0
    for t in range(1, len(whole)):
        loss -= math.log(model.probability(whole[t], whole[:t]))
    return loss / len(part)


@pytest.mark.parametrize("chunk", [7, 2**16])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_losses_are_those_of_one_sequence(order, chunk, monkeypatch):
    # Small chunks cut the text at many places.
    monkeypatch.setattr(closed_form, "CHUNK", chunk)
    # Estimates are kept from test to test.
    closed_form._ESTIMATES.clear()
    data = corpus()
    training, loss = trained(order, data)
    test = closed_form.evaluate_test(training.model, data)
    assert loss == pytest.approx(reference_loss(order, VALID), rel=1e-5)
    assert test.token == pytest.approx(reference_loss(order, TEST), rel=1e-5)
    assert len(test.nll) == len(data.test)


def test_other_windows_of_a_text_have_the_same_loss():
    _, loss = trained(2, corpus())
    _, other = trained(2, corpus(stride=2))
    assert other == pytest.approx(loss)


def test_blocks_without_the_option_have_edges():
    _, loss = trained(4, corpus(), stream=False)
    assert loss != pytest.approx(reference_loss(4, VALID), rel=1e-3)


BEST = 6
"""The order with the least validation loss."""


def test_the_order_is_that_of_the_least_validation_loss():
    losses = [reference_loss(order, VALID) for order in range(1, MAX_ORDER + 1)]
    least = min(losses)
    assert losses[BEST - 1] == least
    # Order 0 stands for the best one.
    training, loss = trained(0, corpus())
    assert loss == pytest.approx(least, rel=1e-5)
    nothing = torch.zeros(1, 2).long()
    report = training.model.report(nothing, nothing)
    assert report == {"order": BEST}


def test_a_model_that_chose_its_order_is_the_one_of_that_order():
    chosen, _ = trained(0, corpus())
    fixed, _ = trained(BEST, corpus())
    task = Task(vocab=V, length=7)
    loaded = zoo.build(chosen.model.config, task)
    # The order is part of the state.
    loaded.load_state_dict(chosen.model.state_dict())
    tokens = torch.randint(V, (4, 7))
    lengths = torch.full((4,), 7)
    expected = fixed.model.log_prob(tokens, lengths)
    for model in (chosen.model, loaded):
        assert model.log_prob(tokens, lengths).equal(expected)
    following = fixed.model.next_log_prob(tokens)
    assert chosen.model.next_log_prob(tokens).equal(following)


def test_the_order_of_other_smoothing_is_not_chosen():
    with pytest.raises(UserError, match="order=0 chooses the order of kneser_ney"):
        zoo.config("ngram_count", order=0, smoothing="add_alpha")


OF_SENTENCES = [{"order": 1}, {"order": 5}]
OF_A_TEXT = [{"order": 2, "stream": True}, {"order": 0, "stream": True}]


def fields_of_baselines(data: Corpus) -> list[dict]:
    found = baselines([Point("gru", "gru")], data)
    return [point.fields for point in found]


def test_tables_of_a_text_have_a_bigram_and_the_best_order():
    assert fields_of_baselines(corpus()) == OF_SENTENCES + OF_A_TEXT


def test_tables_of_sentences_have_no_text():
    sentences = dataclasses.replace(corpus(), train=corpus().valid)
    assert fields_of_baselines(sentences) == OF_SENTENCES
