r"""Base class of the attention models: token vectors, a causal feature stack, an emission.

    x_t = dropout( place(e(s_t)) )         place: positional encoding (`lmzoo.blocks.positions`)
    y   = encode(x)                        y_t depends on x_0..x_t only
    P(s_{t+1} | s_<=t) = emission(y_t)     over Emb if tied, else over a second table

x_t, y_t and e(s) are (E).
"""

from abc import abstractmethod
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import Activation, AttentionBlock, NormPosition
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import Dropout, EmbeddingTable, Layers, Width
from lmzoo.blocks.positions import PositionalEncoding, Positions
from lmzoo.contract import DecodingState, Task
from lmzoo.emissions.base import EmissionChoice
from lmzoo.types import Features, StepFeatures


@config
class LayersConfig:
    """Sizes, attention, positions and emission of a stack of attention layers."""

    width: Width = 32
    """Embedding size E."""
    layers: Layers = 2
    """Number D of layers, of an encoder and of a decoder."""
    attention: Attention.Config = Attention.Config()
    positions: Positions = Positions.ADD
    emission: EmissionChoice = "vector"
    dropout: Dropout = 0.1
    """Dropout rate of token vectors, attention weights and residuals, in training."""


@config
class TransformerConfig(LayersConfig):
    """Sizes, attention, positions, layers and emission."""

    norm: Annotated[NormPosition, Choice(("post", "pre"))] = NormPosition.POST
    activation: Activation = Activation.RELU


@config
class AttentionConfig(LayersConfig):
    """Sizes, attention, positions, emission and further rates."""

    tied: bool = True
    """Whether the emission uses the embedding table."""
    spread: float | None = Field(None, gt=0)
    """Standard deviation of the initial weights of tables, attention and feed-forward layers. None
    is 1/√E for tables and PyTorch's default for linear maps. The emission is not affected."""


def transformer_layers(config: Any, kind: type = AttentionBlock, **std: float | None) -> Any:
    """Return the layers of a Transformer, with the fields of a `TransformerConfig`."""
    layers = nn.ModuleList()
    for _ in range(config.layers):
        layer = kind(
            config.width,
            config.attention,
            dropout=config.dropout,
            norm_position=config.norm,
            activation=config.activation,
            **std,
        )
        layers.append(layer)
    return layers


class AttentionModel(FeatureModel):
    """Base class: a subclass defines the causal stack of attention layers."""

    Config = AttentionConfig

    def __init__(self, config: AttentionConfig, task: Task):
        width = config.width
        spread = config.spread
        super().__init__(config, task, spread)
        length = task.length
        self.place = PositionalEncoding(config.positions, width, length, spread)
        self.dropout = nn.Dropout(config.dropout)
        if not config.tied:
            self.output = EmbeddingTable(task.vocab, width, spread)

    @abstractmethod
    def encode(self, x: Features) -> Features:
        """Return the features y of the token vectors x; y_t depends on x_0..x_t only."""

    @abstractmethod
    def next_feature(
        self,
        x: StepFeatures,
        position: int,
        cache: DecodingState | None,
    ) -> tuple[StepFeatures, DecodingState]:
        """Compute `encode` for one more position, from the cache of those before; None at 0."""

    @property
    def unused(self) -> int:
        """Parameters that no score depends on: the last token is not read."""
        return self.place.per_position

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self._inputs(tokens)
        return self.encode(x)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        # No cache yet: the first step makes it.
        return 0, None

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        position, cache = state
        # A sequence of one token, at its position in the whole sequence.
        embedded = self.embedding(token)[:, None]
        x = self.place(embedded, position)
        x = self.dropout(x)
        y, cache = self.next_feature(x, position, cache)
        scores = self.emission.dense(y[:, 0], self.output_table)
        return scores, (position + 1, cache)

    def _inputs(self, tokens: Tensor) -> Features:
        embedded = self.embedding(tokens)
        x = self.place(embedded)
        return self.dropout(x)
