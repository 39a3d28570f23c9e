r"""What the attention models share: token vectors in, a distribution out.

    x_t = drop( place(e(s_t)) )            place: see blocks/positions.py
    y   = features(x)                      y_t reads x_0..x_t only
    P(s_{t+1} | s_<=t) = emission(y_t)     over e if tied, else over a table of its own

zoo.md 2 (DLM40, 41), 4.1, 4.3.
"""

from abc import abstractmethod
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.embedding import Table
from lmzoo.blocks.positions import PositionalEncoding, Positions
from lmzoo.config import config
from lmzoo.contract import Carried, LanguageModel, Task
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import FloatRange, IntRange
from lmzoo.types import Embeddings, Lengths, Tokens


@config
class AttentionConfig:
    """Sizes, and how tokens enter and leave."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    layers: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
    """The depth D."""
    attention: Attention.Config = Attention.Config()
    positions: Positions = Positions.ADD
    emission: Annotated[Any, EMISSIONS] = "vector"
    tied: bool = True
    dropout: Annotated[float, FloatRange(0.0, 0.3)] = Field(0.1, ge=0, lt=1)
    """On token vectors, attention weights and residuals."""
    spread: float | None = Field(None, gt=0)
    """Standard deviation of the initial weights of tables, attention and feed-forward; None is
    1/√E for tables, torch's for maps. An emission draws its own."""


class AttentionModel(LanguageModel):
    """A causal stack of attention layers between a token table and an emission."""

    Config = AttentionConfig

    def __init__(self, config: AttentionConfig, task: Task) -> None:
        super().__init__(config, task)
        width, spread = config.width, config.spread
        self.embedding = Table(task.vocab, width, spread)
        self.place = PositionalEncoding(config.positions, width, task.length, spread)
        self.dropout = nn.Dropout(config.dropout)
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)
        self.latent = self.emission.latent
        self.output = None if config.tied else Table(task.vocab, width, spread)

    @abstractmethod
    def features(self, x: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        """The context vector after each token; it may read no later one."""

    @abstractmethod
    def next_feature(
        self, x: Float[Tensor, "B 1 E"], place: int, before: Carried | None
    ) -> tuple[Float[Tensor, "B 1 E"], Carried]:
        """`features` of the one vector at this place: (y, what the next one needs to know)."""

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        y = self.features(self._inputs(tokens[:, :-1]))
        return self.emission.log_prob(y, tokens[:, 1:], self._rows())

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.emission.dense(self.features(self._inputs(prefix))[:, -1], self._rows())

    def begin(self, batch: int, *given: Tensor) -> Carried:
        return 0, None

    def advance(self, carried: Carried, token: Tensor) -> tuple[Tensor, Carried]:
        place, before = carried
        x = self.dropout(self.place(self.embedding(token)[:, None], place))
        y, after = self.next_feature(x, place, before)
        return self.emission.dense(y[:, 0], self._rows()), (place + 1, after)

    def posterior(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B K T-1"]:
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self.features(self._inputs(tokens[:, :-1]))
        return torch.softmax(self.emission.joint(y, tokens[:, 1:], self._rows()), dim=-1).mT

    def _inputs(self, tokens: Tensor) -> Float[Tensor, "B t E"]:
        return self.dropout(self.place(self.embedding(tokens)))

    def _rows(self) -> Embeddings:
        return (self.embedding if self.output is None else self.output).weight
