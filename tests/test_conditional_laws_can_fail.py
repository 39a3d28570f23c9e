"""Each law of a conditional score catches the fault it is for."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmzoo.contract import Score, Task, initialise
from tests.faults import Bigram
from tests.laws import Law, conditional, laws_for, laws_of
from tests.tiny import SAME


class Moved(Bigram):
    """A bigram whose logits the mean vector of the source moves, more at later tokens."""

    name = "moved"
    score = Score.CONDITIONAL
    conditional = True

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.source_table = nn.Embedding(task.source_vocab, task.vocab)

    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        real = torch.arange(source.shape[1]) < n[:, None]
        return (self.source_table(source) * real[..., None]).sum(1) / n[:, None]

    def score_tokens(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        logits = self.logits(tokens, lengths) + self.mean(*given)[:, None]
        return self.chosen(logits.log_softmax(-1), tokens)

    def next_log_prob(self, prefix: Tensor, *given: Tensor) -> Tensor:
        logits = self.table(prefix[:, -1]) + self.mean(*self.reads(given))
        return logits.log_softmax(-1)


class IsLouderAfterLongSources(Moved):
    def score_tokens(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        return super().score_tokens(tokens, lengths, *given) + 0.1 * (given[1] > 1)[:, None]


class ReadsOnlyTheFirst(Moved):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return self.source_table(source[:, 0])


class NeedsNoSource(Moved):
    def reads(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return given or (torch.zeros(5, 1, dtype=torch.int64), torch.ones(5, dtype=torch.int64))


class ReadsSourcePads(Moved):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return self.source_table(source).mean(1)


class CountsSourcePads(Moved):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return super().mean(source, n) * source.shape[1]


class AveragesTheSources(Moved):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return super().mean(source, n).mean(0, keepdim=True).expand(len(n), -1)


class DecodesFromTheFirstSource(Moved):
    def next_log_prob(self, prefix: Tensor, *given: Tensor) -> Tensor:
        return super().next_log_prob(prefix, *(column[:1].expand_as(column) for column in given))


FAULTS: list[tuple[type[Moved], Law]] = [
    (IsLouderAfterLongSources, conditional.law_sums_to_one_given_any_source),
    (ReadsOnlyTheFirst, conditional.law_source_is_read),
    (NeedsNoSource, conditional.law_source_is_read),
    (ReadsSourcePads, conditional.law_source_padding_is_ignored),
    (CountsSourcePads, conditional.law_source_padding_is_ignored),
    (AveragesTheSources, conditional.law_source_belongs_to_its_row),
    (DecodesFromTheFirstSource, conditional.law_source_belongs_to_its_row),
]


def toy(cls: type[Moved]) -> Moved:
    model = cls(cls.Config(), Task(vocab=3, length=4, source_vocab=3, source_length=3))
    initialise(model, 0)
    return model


@pytest.mark.parametrize("law", laws_for(Moved))
def test_an_honest_toy_obeys_every_law(law: Law) -> None:
    law(toy(Moved))


@pytest.mark.parametrize(("cls", "law"), FAULTS)
def test_a_planted_fault_is_caught(cls: type[Moved], law: Law) -> None:
    with pytest.raises(AssertionError):
        law(toy(cls))


def test_every_conditional_law_has_a_fault_that_breaks_it() -> None:
    assert {law for _, law in FAULTS} == set(laws_of(conditional)) <= set(laws_for(Moved))


def test_a_plain_model_takes_no_notice_of_sources() -> None:
    model = Bigram(Bigram.Config(), Task(vocab=3, length=4))
    tokens, lengths = torch.ones(2, 4, dtype=torch.int64), torch.full((2,), 4)
    alone = model.log_prob(tokens, lengths)
    beside = model.log_prob(tokens, lengths, tokens[:, 1:], lengths - 1)
    assert (alone - beside).abs().max() < SAME
    assert model.reads((tokens,)) == ()
