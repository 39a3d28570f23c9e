r"""Span corruption: an encoder reads a sequence with hidden spans, a decoder predicts the spans.

    m = sample_spans(u)                             m_t = 1: s_t is hidden; `<start>` never is
    x = s with each hidden span as one sentinel     y = the spans, each after its sentinel
    log P(s_t | x, y_<t)    at hidden t             0 elsewhere

x and y share one embedding table (`spans.py` builds them). Sentinels are inputs and are not
scored, so the probabilities of all fillings of the spans sum to 1. (T5 also predicts where a span
ends.)

Training draws new spans for every batch and maximises m_t / p · log P(s_t | x, y_<t), which weighs
every token once in expectation. Evaluation hides the tokens one by one, in `samples` spans drawn
given m_t = 1 that are the same for all sequences, and averages log P(s_t | x, y_<t). The score is
in nats per hidden token, like that of `masked_lm`. `next_log_prob` predicts the first token of one
span after the prefix.

Differences from T5: positions are added to the embeddings, where T5 adds a learned number for each
distance and head to the attention; LayerNorm has a mean and a bias, where T5 divides by the root
mean square. `relative_attention` and `modern_decoder` have such parts.

Source: Raffel et al. 2020 (arXiv:1910.10683); S3.
"""

from typing import Annotated, ClassVar

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.positions import PositionalEncoding
from lmzoo.contract import LanguageModel, Score, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.noise import fresh_uniforms, shared_uniforms
from lmzoo.functional.normalise import Norm
from lmzoo.models.seq2seq.spans import Ids, corrupt, sample_spans, sample_spans_around, span_targets
from lmzoo.models.seq2seq.transformer import EncoderDecoder, TransformerConfig
from lmzoo.types import Lengths, Mask, Prefix, Tokens


@model(
    "span_corruption", family="objective", document="S3",
    source="Raffel et al. 2020 (arXiv:1910.10683)",
)  # fmt: skip
class SpanCorruption(LanguageModel):
    """Transformer encoder-decoder that predicts hidden spans (T5)."""

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False
    """The encoder reads the tokens after a span, by design."""

    @config
    class Config(TransformerConfig):
        """Transformer fields and the distribution of spans."""

        density: Annotated[float, FloatRange(0.1, 0.5)] = Field(0.15, gt=0, le=0.5)
        """Probability p that a token is hidden."""
        span: Annotated[float, FloatRange(1.0, 10.0)] = Field(3.0, ge=1)
        """Mean length μ of a span."""
        samples: int = Field(1, ge=1)
        """Number of span draws per token and evaluation."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width = config.width
        self.embedding = EmbeddingTable(task.vocab, width, None)
        self.sentinels = EmbeddingTable(task.length // 2, width, None)
        self.place = PositionalEncoding(config.positions, width, 2 * task.length, None)
        self.dropout = nn.Dropout(config.dropout)
        self.body = EncoderDecoder(config)
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        self._check_length(tokens.shape[1])
        c, weight, count = self.config, self.embedding.weight, tokens.shape[1] - 1
        if self.training:
            u = fresh_uniforms((len(tokens), count), weight)
            masked = self._span_mask(sample_spans(u, c.density, c.span), lengths)
            return self.score_hidden(tokens, lengths, masked) / c.density
        # Always draw for the longest sequence, so that padding does not change the draws.
        u = shared_uniforms((c.samples, self.task.length - 1, self.task.length - 1), weight)
        scores = []
        for at in range(count):
            samples = [
                self.score_hidden(
                    tokens, lengths, self._span_mask(drawn.expand(len(tokens), -1), lengths)
                )
                for drawn in sample_spans_around(at, u[:, at, :count], c.density, c.span)
            ]
            scores.append(torch.stack(samples)[:, :, at].mean(0))
        return torch.stack(scores, dim=1)

    def score_hidden(
        self, tokens: Tokens, lengths: Lengths, masked: Mask
    ) -> Float[Tensor, "B T-1"]:
        """Return log P(s_t | visible tokens, hidden tokens before t) at hidden t, else 0."""
        vocab = self.task.vocab
        source, source_lengths = corrupt(tokens, lengths, masked, vocab)
        target, position = span_targets(tokens, masked, vocab)
        y = self._outputs(target[:, :-1], source, source_lengths)
        scored = torch.where(target < vocab, target, 0)[:, 1:]
        scores = self.emission.log_prob(y, scored, self.embedding.weight)
        scores = scores.gather(1, (position - 1).clamp_min(0)[:, 1:])
        return torch.where(masked[:, 1:], scores, 0.0)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        self._check_length(prefix.shape[1] + 1)
        source = nn.functional.pad(prefix, (0, 1), value=self.task.vocab)
        lengths = torch.full((len(source),), source.shape[1], device=source.device)
        y = self._outputs(source[:, -1:], source, lengths)
        return self.emission.dense(y[:, -1], self.embedding.weight)

    def _span_mask(self, drawn: Bool[Tensor, "B t"], lengths: Lengths) -> Mask:
        """Return the hidden positions of each sequence, without `<start>` and pads."""
        masked = nn.functional.pad(drawn, (1, 0))
        t = torch.arange(masked.shape[1], device=lengths.device)
        return masked & (t < lengths[:, None])

    def _outputs(self, target: Prefix, source: Ids, lengths: Lengths) -> Float[Tensor, "B t E"]:
        memory = self.body.encode(self._inputs(source), lengths)
        return self.body.decode(self._inputs(target), memory, lengths)

    def _inputs(self, ids: Ids) -> Float[Tensor, "B N E"]:
        table = torch.cat([self.embedding.weight, self.sentinels.weight])
        return self.dropout(self.place(nn.functional.embedding(ids, table)))

    def _check_length(self, count: int) -> None:
        if count > self.task.length:
            raise UserError(
                f"{self.name} is built for {self.task.length} tokens, got {count}; "
                "use shorter sequences or a longer task.length"
            )
