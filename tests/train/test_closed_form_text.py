"""Count models that read a text as one sequence, and choose their order on validation."""

import dataclasses

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

V, BLOCK = 9, 5


def text(count: int, seed: int) -> torch.Tensor:
    """A text in which a token depends on the two before it, mostly."""
    generator = torch.Generator().manual_seed(seed)
    tokens, draws = [4, 5], torch.rand(count, generator=generator)
    for draw in draws.tolist():
        tokens.append(4 + (tokens[-1] + 2 * tokens[-2] + (draw < 0.25)) % 5)
    return torch.tensor(tokens[2:])


PARTS = text(400, 0), text(90, 1), text(80, 2)


def corpus(stride: int = BLOCK) -> Corpus:
    train, valid, test = PARTS
    return Corpus(
        name="letters", vocabulary=Vocabulary((*SPECIALS, *"abcde")), unit="letter", source="",
        train=cut_blocks(train, BLOCK, 0), valid=cut_windows(valid, BLOCK, stride),
        test=cut_windows(test, BLOCK, stride), ends=False,
    )  # fmt: skip


def trained(order: int, data: Corpus, **fields: object) -> tuple[Training, dict]:
    config = zoo.config("ngram_count", order=order, **{"stream": True, **fields})
    training = Training(zoo.build(config, data.task), Recipe(), seed=0)
    (record,) = fit(training, data, 1)
    return training, record


def reference_loss(order: int, part: torch.Tensor) -> float:
    model = ReferenceKneserNey([(START, *PARTS[0].tolist())], order, V)
    whole = (START, *part.tolist())
    scores = [model.probability(whole[t], whole[:t]) for t in range(1, len(whole))]
    return float(-torch.tensor(scores, dtype=torch.float64).log().mean())


@pytest.mark.parametrize("chunk", [7, 2**16])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_losses_are_those_of_one_sequence(order, chunk, monkeypatch):
    monkeypatch.setattr(closed_form, "CHUNK", chunk)
    closed_form._ESTIMATES.clear()
    data = corpus()
    training, record = trained(order, data)
    assert record["valid_token"] == pytest.approx(reference_loss(order, PARTS[1]), rel=1e-5)
    test = closed_form.evaluate_test(training.model, data)
    assert test.token == pytest.approx(reference_loss(order, PARTS[2]), rel=1e-5)
    assert len(test.nll) == len(data.test)
    other = corpus(stride=2)  # other windows, the same text
    assert trained(order, other)[1]["valid_token"] == pytest.approx(record["valid_token"])


def test_blocks_without_the_option_have_edges():
    assert trained(4, corpus(), stream=False)[1]["valid_token"] != pytest.approx(
        reference_loss(4, PARTS[1]), rel=1e-3
    )


def test_the_order_is_that_of_the_least_validation_loss():
    losses = {order: reference_loss(order, PARTS[1]) for order in range(1, MAX_ORDER + 1)}
    best = min(losses, key=losses.__getitem__)
    assert 1 < best < MAX_ORDER, "the text decides"
    training, record = trained(0, corpus())
    assert record["valid_token"] == pytest.approx(losses[best], rel=1e-5)
    assert training.model.report(*[torch.zeros(1, 2).long()] * 2) == {"order": best}
    fixed, _ = trained(best, corpus())
    tokens = torch.randint(V, (4, 7))
    lengths = torch.full((4,), 7)
    expected = fixed.model.log_prob(tokens, lengths)
    assert torch.equal(training.model.log_prob(tokens, lengths), expected)
    assert torch.equal(training.model.next_log_prob(tokens), fixed.model.next_log_prob(tokens))
    again = zoo.build(training.model.config, Task(vocab=V, length=7))
    again.load_state_dict(training.model.state_dict())
    assert torch.equal(again.log_prob(tokens, lengths), expected)


def test_the_order_of_other_smoothing_is_not_chosen():
    with pytest.raises(UserError, match="order=0 chooses the order of kneser_ney"):
        zoo.config("ngram_count", order=0, smoothing="add_alpha")


def test_tables_of_a_text_have_a_bigram_and_the_best_order():
    point = Point("gru", "gru")
    fields = [each.fields for each in baselines([point], corpus())]
    assert fields == [
        {"order": 1}, {"order": 5}, {"order": 2, "stream": True}, {"order": 0, "stream": True},
    ]  # fmt: skip
    sentences = dataclasses.replace(corpus(), train=corpus().valid)
    assert [each.fields["order"] for each in baselines([point], sentences)] == [1, 5]
