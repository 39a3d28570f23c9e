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
        tokens.append(4 + (tokens[-1] + 2 * tokens[-2] + (draw < 0.25)) % 5)
    return torch.tensor(tokens[2:])


TRAIN = text(400, 0)
VALID = text(90, 1)
TEST = text(80, 2)


def corpus(stride: int = BLOCK) -> Corpus:
    return Corpus(
        name="letters",
        vocabulary=Vocabulary((*SPECIALS, *"abcde")),
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
    training = Training(zoo.build(config, data.task), Recipe(), seed=0)
    (record,) = fit(training, data, 1)
    return training, record["valid_token"]


def reference_loss(order: int, part: torch.Tensor) -> float:
    model = ReferenceKneserNey([(START, *TRAIN.tolist())], order, V)
    whole = (START, *part.tolist())
    scores = [model.probability(whole[t], whole[:t]) for t in range(1, len(whole))]
    return -sum(map(math.log, scores)) / len(scores)


@pytest.mark.parametrize("chunk", [7, 2**16])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_losses_are_those_of_one_sequence(order, chunk, monkeypatch):
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
    losses = {order: reference_loss(order, VALID) for order in range(1, MAX_ORDER + 1)}
    assert min(losses, key=losses.__getitem__) == BEST
    training, loss = trained(0, corpus())
    assert loss == pytest.approx(losses[BEST], rel=1e-5)
    nothing = torch.zeros(1, 2).long()
    assert training.model.report(nothing, nothing) == {"order": BEST}


def test_a_model_that_chose_its_order_is_the_one_of_that_order():
    chosen, _ = trained(0, corpus())
    fixed, _ = trained(BEST, corpus())
    loaded = zoo.build(chosen.model.config, Task(vocab=V, length=7))
    loaded.load_state_dict(chosen.model.state_dict())
    tokens = torch.randint(V, (4, 7))
    lengths = torch.full((4,), 7)
    expected = fixed.model.log_prob(tokens, lengths)
    assert chosen.model.log_prob(tokens, lengths).equal(expected)
    assert loaded.log_prob(tokens, lengths).equal(expected)
    following = fixed.model.next_log_prob(tokens)
    assert chosen.model.next_log_prob(tokens).equal(following)


def test_the_order_of_other_smoothing_is_not_chosen():
    with pytest.raises(UserError, match="order=0 chooses the order of kneser_ney"):
        zoo.config("ngram_count", order=0, smoothing="add_alpha")


OF_SENTENCES = [{"order": 1}, {"order": 5}]
OF_A_TEXT = [{"order": 2, "stream": True}, {"order": 0, "stream": True}]


def test_tables_of_a_text_have_a_bigram_and_the_best_order():
    found = baselines([Point("gru", "gru")], corpus())
    assert [each.fields for each in found] == OF_SENTENCES + OF_A_TEXT


def test_tables_of_sentences_have_no_text():
    sentences = dataclasses.replace(corpus(), train=corpus().valid)
    found = baselines([Point("gru", "gru")], sentences)
    assert [each.fields["order"] for each in found] == [1, 5]
