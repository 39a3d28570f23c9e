r"""Span corruption: hide spans of a sequence, read the rest, and say what was hidden.

    m = spans(u)                                    see spans.py; <start> is never hidden
    x = s with each hidden span as one sentinel     y = the spans, each behind its sentinel
    log P(s_t | x, y_<t)    at hidden t             0 elsewhere

An encoder reads x, a decoder says y. Sentinels are fed and not scored, so what is scored sums
to one over all fillings of the spans (T5 also predicts where a span ends). What is read and
what is said are of one vocabulary, and share a table.

Training hides afresh in every batch and raises m_t / p · log P(s_t | x, y_<t), which in
expectation weighs every token once. Evaluation hides one token after the other, each in
`samples` spans drawn given m_t = 1, the same for all sequences: the mean of log P(s_t | x, y_<t)
is in nats per hidden token, as that of `masked_lm`, which is told what stands beside it.
`next_log_prob` asks for one span behind the prefix.

Raffel et al. 2020 (arXiv:1910.10683); S3; zoo.md 4.3.
"""

from typing import Annotated, ClassVar

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.positions import PositionalEncoding
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Score, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.noise import fresh_uniforms, shared_uniforms
from lmzoo.functional.normalise import Norm
from lmzoo.models.seq2seq.spans import Ids, corrupt, hidden, spans, spans_around
from lmzoo.models.seq2seq.transformer import EncoderDecoder, TransformerConfig
from lmzoo.search_space import FloatRange
from lmzoo.types import Lengths, Mask, Prefix, Tokens


@model(
    "span_corruption",
    family="objective",
    document="S3",
    source="Raffel et al. 2020 (arXiv:1910.10683)",
)
class SpanCorruption(LanguageModel):
    """T5: a Transformer encoder and decoder that restore hidden spans."""

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False
    """The encoder has read what stands after a span, by design."""

    @config
    class Config(TransformerConfig):
        """How much is hidden, in how long spans."""

        density: Annotated[float, FloatRange(0.1, 0.5)] = Field(0.15, gt=0, le=0.5)
        """p, the share of tokens hidden."""
        span: Annotated[float, FloatRange(1.0, 10.0)] = Field(3.0, ge=1)
        """μ, the mean length of a span."""
        samples: int = Field(1, ge=1)
        """Draws of the spans around each token, per evaluation."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width = config.width
        self.embedding = Table(task.vocab, width, None)
        self.sentinels = Table(task.length // 2, width, None)
        self.place = PositionalEncoding(config.positions, width, 2 * task.length, None)
        self.dropout = nn.Dropout(config.dropout)
        self.body = EncoderDecoder(config)
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        self._require_room(tokens.shape[1])
        how, weight, count = self.config, self.embedding.weight, tokens.shape[1] - 1
        if self.training:
            u = fresh_uniforms((len(tokens), count), weight)
            masked = self._real(spans(u, how.density, how.span), lengths)
            return self.score_hidden(tokens, lengths, masked) / how.density
        # As many numbers as the longest sequence needs, so that padding draws no others.
        u = shared_uniforms((how.samples, self.task.length - 1, self.task.length - 1), weight)
        scores = []
        for at in range(count):
            each = [
                self.score_hidden(
                    tokens, lengths, self._real(drawn.expand(len(tokens), -1), lengths)
                )
                for drawn in spans_around(at, u[:, at, :count], how.density, how.span)
            ]
            scores.append(torch.stack(each)[:, :, at].mean(0))
        return torch.stack(scores, dim=1)

    def score_hidden(
        self, tokens: Tokens, lengths: Lengths, masked: Mask
    ) -> Float[Tensor, "B T-1"]:
        """Log P(s_t | what is not masked, s_<t of what is), 0 where nothing is masked."""
        vocab = self.task.vocab
        source, source_lengths = corrupt(tokens, lengths, masked, vocab)
        said, place = hidden(tokens, masked, vocab)
        y = self._outputs(said[:, :-1], source, source_lengths)
        targets = torch.where(said < vocab, said, 0)[:, 1:]
        scores = self.emission.log_prob(y, targets, self.embedding.weight)
        scores = scores.gather(1, (place - 1).clamp_min(0)[:, 1:])
        return torch.where(masked[:, 1:], scores, 0.0)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        self._require_room(prefix.shape[1] + 1)
        source = nn.functional.pad(prefix, (0, 1), value=self.task.vocab)
        lengths = torch.full((len(source),), source.shape[1], device=source.device)
        y = self._outputs(source[:, -1:], source, lengths)
        return self.emission.dense(y[:, -1], self.embedding.weight)

    def _real(self, drawn: Bool[Tensor, "B t"], lengths: Lengths) -> Mask:
        """What is hidden of each sequence: no `<start>` and no pad."""
        masked = nn.functional.pad(drawn, (1, 0))
        t = torch.arange(masked.shape[1], device=lengths.device)
        return masked & (t < lengths[:, None])

    def _outputs(self, said: Prefix, source: Ids, lengths: Lengths) -> Float[Tensor, "B t E"]:
        memory = self.body.encode(self._inputs(source), lengths)
        return self.body.decode(self._inputs(said), memory, lengths)

    def _inputs(self, ids: Ids) -> Float[Tensor, "B N E"]:
        table = torch.cat([self.embedding.weight, self.sentinels.weight])
        return self.dropout(self.place(nn.functional.embedding(ids, table)))

    def _require_room(self, count: int) -> None:
        if count > self.task.length:
            raise UserError(
                f"{self.name} was made for {self.task.length} tokens and got {count}; "
                "use shorter sequences or a longer task.length"
            )
