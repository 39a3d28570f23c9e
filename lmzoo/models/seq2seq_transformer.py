"""The Transformer encoder-decoder."""

from typing import Any, ClassVar, NamedTuple

from jaxtyping import Bool
from torch import Tensor, nn

from lmzoo.blocks.attention import KeysAndValues
from lmzoo.blocks.attention_block import CrossBlock, NormPosition
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.positions import PositionalEncoding
from lmzoo.contract import DecodingState, Score, Task, model
from lmzoo.functional.token_scores import length_mask
from lmzoo.models.attention_model import TransformerConfig, transformer_layers
from lmzoo.models.seq2seq_recurrent import Source
from lmzoo.types import Features, Lengths, NextScores, SourceVectors, StepFeatures


class TransformerState(NamedTuple):
    """Decoding state: keys and values of each decoder block."""

    source: tuple[KeysAndValues, ...]
    """Keys and values of the encoded source."""
    mask: Bool[Tensor, "B 1 S"]
    """True at tokens of the source, False at pads."""
    target: tuple[KeysAndValues | None, ...]
    """Keys and values of the target positions so far."""


class EncoderDecoder(nn.Module):
    """A Transformer encoder stack and a decoder stack of the same depth.

        m = encoder(x)          D blocks; each token attends to all tokens
        y = decoder(u, m)       D blocks; position i attends to j <= i and to all tokens of m

    x and m are (B, S, E), u and y are (B, t, E). Pads are not attended to. With norm=pre each stack
    ends with a LayerNorm.

    Source: Vaswani et al. 2017 (arXiv:1706.03762); Xiong et al. 2020 (arXiv:2002.04745); S3.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        width = config.width
        self.encoder = transformer_layers(config)
        self.decoder: Any = transformer_layers(config, CrossBlock)
        self.encoder_norm = None
        self.decoder_norm = None
        # Post-norm blocks end with a norm of their own.
        if config.norm is NormPosition.PRE:
            self.encoder_norm = nn.LayerNorm(width)
            self.decoder_norm = nn.LayerNorm(width)

    def encode(self, x: SourceVectors, lengths: Lengths) -> SourceVectors:
        """Return m. Its vectors at pads are undefined and are not attended to."""
        count = x.shape[1]
        real = length_mask(lengths, count)
        # Of every query; pads of the source are read by none.
        mask = real[:, None].expand(-1, count, -1)
        for block in self.encoder:
            x = block(x, mask=mask)
        if self.encoder_norm is None:
            return x
        return self.encoder_norm(x)

    def decode(
        self,
        u: Features,
        memory: SourceVectors,
        lengths: Lengths,
    ) -> Features:
        """Return y of every position; `lengths` are the lengths of the memory."""
        real = length_mask(lengths, memory.shape[1])
        queries = u.shape[1]
        mask = real[:, None].expand(-1, queries, -1)
        for block in self.decoder:
            u = block(u, memory, mask)
        # A post-norm layer ends with its norm.
        if self.decoder_norm is None:
            return u
        return self.decoder_norm(u)

    def begin(self, memory: SourceVectors, lengths: Lengths) -> TransformerState:
        """Return the decoding state before the first position."""
        real = length_mask(lengths, memory.shape[1])
        # Once for all steps: the source does not change while the target is decoded.
        source = [block.attention.keys_and_values(memory) for block in self.decoder]
        # Nothing of the target is read yet.
        target = (None,) * len(source)
        return TransformerState(tuple(source), real[:, None], target)

    def advance(
        self, u: StepFeatures, state: TransformerState
    ) -> tuple[StepFeatures, TransformerState]:
        """Decode one more position: return y and the new state."""
        target = []
        caches = zip(self.decoder, state.source, state.target, strict=True)
        # Keys and values of the source stay, those of the target grow.
        for block, source, before in caches:
            u, after = block.advance_over(source, u, before, state.mask)
            target.append(after)
        y = u
        if self.decoder_norm is not None:
            y = self.decoder_norm(u)
        return y, state._replace(target=tuple(target))


@model(
    "transformer_encdec",
    family="seq2seq",
    document="S3",
    source="Vaswani et al. 2017 (arXiv:1706.03762)",
)
class TransformerEncoderDecoder(FeatureModel):
    """Transformer encoder-decoder with cross-attention.

        m   = encoder( place(e'(x)) )
        u_t = decoder( place(e(y_0)), .., place(e(y_{t-1})), m )
        P(y_t | y_<t, x) = softmax( Emb u_t )

    x are source tokens and y_t target tokens with their own embedding tables e' and e. place is the
    positional encoding (`lmzoo.blocks.positions`), encoder and decoder are those of
    `EncoderDecoder`. m is (S, E), u_t is (E), Emb is (V, E).
    """

    score: ClassVar[Score] = Score.CONDITIONAL
    conditional: ClassVar[bool] = True
    Config = TransformerConfig

    def __init__(self, config: TransformerConfig, task: Task):
        super().__init__(config, task)
        width = config.width
        positions = config.positions
        # Source and target have vocabularies, and positions, of their own.
        self.source_embedding = EmbeddingTable(task.source_vocab, width, None)
        self.source_place = PositionalEncoding(positions, width, task.source_length, None)
        self.place = PositionalEncoding(positions, width, task.length, None)
        self.dropout = nn.Dropout(config.dropout)
        self.body = EncoderDecoder(config)

    @property
    def unused(self) -> int:
        """Parameters that no score depends on: the last token is not read."""
        return self.place.per_position

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        source, source_lengths = sources
        embedded = self.embedding(tokens)
        u = self.dropout(self.place(embedded))
        memory = self._encode(source, source_lengths)
        return self.body.decode(u, memory, source_lengths)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        source, lengths = self.conditioning_inputs(sources)
        memory = self._encode(source, lengths)
        state = self.body.begin(memory, lengths)
        return 0, state

    def advance(self, state: DecodingState, token: Tensor) -> tuple[NextScores, DecodingState]:
        position, body_state = state
        embedded = self.embedding(token)[:, None]
        x = self.place(embedded, position)
        u = self.dropout(x)
        y, body_state = self.body.advance(u, body_state)
        scores = self.emission.dense(y[:, 0], self.embedding.weight)
        # The state counts positions: an encoding needs the number of the next one.
        return scores, (position + 1, body_state)

    def _encode(self, source: Source, lengths: Lengths) -> SourceVectors:
        x = self.source_embedding(source)
        x = self.source_place(x)
        x = self.dropout(x)
        return self.body.encode(x, lengths)
