"""A correct model of a conditional score, and one subclass for each fault to detect."""

from typing import Any

import torch
from torch import Tensor, nn

from lmzoo.contract import Score, Task
from tests.toy_model import Bigram


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
