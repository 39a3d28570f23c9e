"""Each law of a conditional score detects its fault."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmzoo.contract import Score, Task
from lmzoo.seeding import initialise
from tests.faults import Bigram
from tests.laws import Law, conditional, laws_for, laws_of
from tests.tiny import SAME


class SourceBigram(Bigram):
    """A bigram model that adds the mean vector of the source to its logits."""

    name = "source_bigram"
    score = Score.CONDITIONAL
    conditional = True

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.source_table = nn.Embedding(task.source_vocab, task.vocab)

    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        real = torch.arange(source.shape[1]) < n[:, None]
        return (self.source_table(source) * real[..., None]).sum(1) / n[:, None]

    def score_tokens(self, tokens: Tensor, lengths: Tensor, *source: Tensor) -> Tensor:
        logits = self.logits(tokens, lengths) + self.mean(*source)[:, None]
        return self.chosen(logits.log_softmax(-1), tokens)

    def next_log_prob(self, prefix: Tensor, *source: Tensor) -> Tensor:
        logits = self.table(prefix[:, -1]) + self.mean(*self.conditioning_inputs(source))
        return logits.log_softmax(-1)


class SumsToMoreAfterLongSources(SourceBigram):
    def score_tokens(self, tokens: Tensor, lengths: Tensor, *source: Tensor) -> Tensor:
        return super().score_tokens(tokens, lengths, *source) + 0.1 * (source[1] > 1)[:, None]


class ReadsFirstSourceTokenOnly(SourceBigram):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return self.source_table(source[:, 0])


class AcceptsMissingSource(SourceBigram):
    def conditioning_inputs(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return given or (torch.zeros(5, 1, dtype=torch.int64), torch.ones(5, dtype=torch.int64))


class ReadsSourcePadding(SourceBigram):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return self.source_table(source).mean(1)


class DependsOnPaddedSourceLength(SourceBigram):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return super().mean(source, n) * source.shape[1]


class AveragesSourcesOverTheBatch(SourceBigram):
    def mean(self, source: Tensor, n: Tensor) -> Tensor:
        return super().mean(source, n).mean(0, keepdim=True).expand(len(n), -1)


class DecodesFromFirstRowsSource(SourceBigram):
    def next_log_prob(self, prefix: Tensor, *source: Tensor) -> Tensor:
        return super().next_log_prob(prefix, *(column[:1].expand_as(column) for column in source))


FAULTS: list[tuple[type[SourceBigram], Law]] = [
    (SumsToMoreAfterLongSources, conditional.law_sums_to_one_given_any_source),
    (ReadsFirstSourceTokenOnly, conditional.law_source_is_read),
    (AcceptsMissingSource, conditional.law_source_is_read),
    (ReadsSourcePadding, conditional.law_source_padding_is_ignored),
    (DependsOnPaddedSourceLength, conditional.law_source_padding_is_ignored),
    (AveragesSourcesOverTheBatch, conditional.law_source_belongs_to_its_row),
    (DecodesFromFirstRowsSource, conditional.law_source_belongs_to_its_row),
]


def toy(cls: type[SourceBigram]) -> SourceBigram:
    model = cls(cls.Config(), Task(vocab=3, length=4, source_vocab=3, source_length=3))
    initialise(model, 0)
    return model


@pytest.mark.parametrize("law", laws_for(SourceBigram))
def test_a_correct_model_obeys_every_law(law: Law) -> None:
    law(toy(SourceBigram))


@pytest.mark.parametrize(("cls", "law"), FAULTS)
def test_a_fault_is_detected(cls: type[SourceBigram], law: Law) -> None:
    with pytest.raises(AssertionError):
        law(toy(cls))


def test_every_conditional_law_has_a_fault_that_violates_it() -> None:
    assert {law for _, law in FAULTS} == set(laws_of(conditional)) <= set(laws_for(SourceBigram))


def test_an_unconditional_model_ignores_sources() -> None:
    model = Bigram(Bigram.Config(), Task(vocab=3, length=4))
    tokens, lengths = torch.ones(2, 4, dtype=torch.int64), torch.full((2,), 4)
    alone = model.log_prob(tokens, lengths)
    with_source = model.log_prob(tokens, lengths, tokens[:, 1:], lengths - 1)
    assert (alone - with_source).abs().max() < SAME
    assert model.conditioning_inputs((tokens,)) == ()
