r"""The Transformer as published: an encoder of the source, a decoder that attends to it.

    m = encoder( place(e'(x)) )
    y_t = decoder( place(e(y_0)), .., place(e(y_{t-1})), m )        place: see blocks/positions.py
    P(y_t | y_<t, x) = softmax( Emb y_t )

Nothing is shared between the two tables: source and target have vocabularies of their own.

Vaswani et al. 2017 (arXiv:1706.03762); S3; zoo.md 4.3.
"""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.positions import PositionalEncoding
from lmzoo.config import config
from lmzoo.contract import Carried, LanguageModel, Score, Task, model, needs_source_message
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm
from lmzoo.models.seq2seq.base import Source
from lmzoo.models.seq2seq.transformer import EncoderDecoder, TransformerConfig
from lmzoo.types import Lengths, Prefix


@model(
    "transformer_encdec",
    family="seq2seq",
    document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
)
class TransformerEncoderDecoder(LanguageModel):
    """Transformer encoder and decoder, joined by cross-attention."""

    score: ClassVar[Score] = Score.CONDITIONAL
    conditional: ClassVar[bool] = True

    @config
    class Config(TransformerConfig):
        """Sizes and parts."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        if not task.source_vocab:
            raise UserError(needs_source_message(self.name))
        width, positions = config.width, config.positions
        self.source_embedding = Table(task.source_vocab, width, None)
        self.embedding = Table(task.vocab, width, None)
        self.source_place = PositionalEncoding(positions, width, task.source_length, None)
        self.place = PositionalEncoding(positions, width, task.length, None)
        self.dropout = nn.Dropout(config.dropout)
        self.body = EncoderDecoder(config)
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)

    def outputs(
        self, tokens: Prefix, source: Source, source_lengths: Lengths
    ) -> Float[Tensor, "B t E"]:
        """y after each token of the target."""
        u = self.dropout(self.place(self.embedding(tokens)))
        return self.body.decode(u, self._encode(source, source_lengths), source_lengths)

    def score_tokens(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        y = self.outputs(tokens[:, :-1], *given)
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)

    def next_log_prob(self, prefix: Tensor, *given: Tensor) -> Float[Tensor, "B V"]:
        last = self.outputs(prefix, *self.reads(given))[:, -1]
        return self.emission.dense(last, self.embedding.weight)

    def begin(self, batch: int, *given: Tensor) -> Carried:
        source, lengths = self.reads(given)
        return 0, self.body.begin(self._encode(source, lengths), lengths)

    def advance(self, carried: Carried, token: Tensor) -> tuple[Float[Tensor, "B V"], Carried]:
        place, before = carried
        u = self.dropout(self.place(self.embedding(token)[:, None], place))
        y, after = self.body.advance(u, before)
        return self.emission.dense(y[:, 0], self.embedding.weight), (place + 1, after)

    def _encode(self, source: Source, lengths: Lengths) -> Float[Tensor, "B S E"]:
        x = self.dropout(self.source_place(self.source_embedding(source)))
        return self.body.encode(x, lengths)
