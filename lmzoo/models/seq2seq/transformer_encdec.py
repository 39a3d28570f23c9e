r"""Transformer encoder-decoder: the decoder attends to the encoded source.

    m   = encoder( place(e'(x)) )
    u_t = decoder( place(e(y_0)), .., place(e(y_{t-1})), m )
    P(y_t | y_<t, x) = softmax( Emb u_t )

x are source tokens and y_t target tokens with their own embedding tables e' and e. place is the
positional encoding (`lmzoo.blocks.positions`), encoder and decoder are those of `transformer.py`.
m is (S, E), u_t is (E), Emb is (V, E).

Source: Vaswani et al. 2017 (arXiv:1706.03762); S3.
"""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.positions import PositionalEncoding
from lmzoo.contract import DecodingState, Score, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.models.seq2seq.base import Source
from lmzoo.models.seq2seq.transformer import EncoderDecoder, TransformerConfig
from lmzoo.types import Lengths, needs_source_message


@model(
    "transformer_encdec", family="seq2seq", document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
)  # fmt: skip
class TransformerEncoderDecoder(FeatureModel):
    """Transformer encoder-decoder with cross-attention."""

    score: ClassVar[Score] = Score.CONDITIONAL
    conditional: ClassVar[bool] = True

    @config
    class Config(TransformerConfig):
        """Sizes, attention, positions, layers and emission."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        if not task.source_vocab:
            raise UserError(needs_source_message(self.name))
        width, positions = config.width, config.positions
        self.source_embedding = EmbeddingTable(task.source_vocab, width, None)
        self.embedding = EmbeddingTable(task.vocab, width, None)
        self.source_place = PositionalEncoding(positions, width, task.source_length, None)
        self.place = PositionalEncoding(positions, width, task.length, None)
        self.dropout = nn.Dropout(config.dropout)
        self.body = EncoderDecoder(config)
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)

    @property
    def unused(self) -> int:
        """Parameters that no score depends on: the last token is not read."""
        return self.place.per_position

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        source, source_lengths = sources
        u = self.dropout(self.place(self.embedding(tokens)))
        return self.body.decode(u, self._encode(source, source_lengths), source_lengths)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        source, lengths = self.conditioning_inputs(sources)
        return 0, self.body.begin(self._encode(source, lengths), lengths)

    def advance(
        self, state: DecodingState, token: Tensor
    ) -> tuple[Float[Tensor, "B V"], DecodingState]:
        position, body_state = state
        u = self.dropout(self.place(self.embedding(token)[:, None], position))
        y, body_state = self.body.advance(u, body_state)
        return self.emission.dense(y[:, 0], self.embedding.weight), (position + 1, body_state)

    def _encode(self, source: Source, lengths: Lengths) -> Float[Tensor, "B S E"]:
        x = self.dropout(self.source_place(self.source_embedding(source)))
        return self.body.encode(x, lengths)
