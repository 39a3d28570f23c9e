"""Config fields that many models share; linear and embedding layers with a chosen deviation."""

from typing import Annotated

from pydantic import Field
from torch import nn

from lmzoo.base.config import config
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.emissions.base import NumComponents

Width = Annotated[int, IntRange(8, 256, log=True), Field(ge=2)]
Layers = Annotated[int, IntRange(1, 6), Field(ge=1)]
Window = Annotated[int, IntRange(1, 8), Field(ge=1)]
Dropout = Annotated[float, FloatRange(0.0, 0.3), Field(ge=0, lt=1)]


@config
class EmbeddingConfig:
    """Fields of a model with a token embedding table (`lmzoo.blocks.layers`)."""

    width: Width = 32
    embedding_std: float | None = Field(None, gt=0)
    """Standard deviation of the initial embeddings; None is 1/√E."""


@config
class ComponentConfig(EmbeddingConfig):
    """Fields of a model that mixes K word distributions (`lmzoo.emissions.mixture`)."""

    components: NumComponents = 32
    """Number K of components."""


class Linear(nn.Linear):
    """A linear layer with weights from N(0, std²) and zero bias.

    With `std=None`, weights and bias are drawn as by `torch.nn.Linear`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        std: float | None = None,
        *,
        bias: bool = True,
    ):
        # Before `super`, which draws the weights.
        self._std = std
        super().__init__(in_features, out_features, bias=bias)

    def reset_parameters(self):
        """Draw the weights from N(0, std²) and set the bias to 0, or as torch if `std` is None."""
        if self._std is None:
            super().reset_parameters()
            return
        nn.init.normal_(self.weight, std=self._std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class EmbeddingTable(nn.Embedding):
    """A table of `vocab` vectors from N(0, std²), by default with std = 1/√width."""

    def __init__(self, vocab: int, width: int, std: float | None):
        # Before `super`, which draws the vectors.
        if std is None:
            self._std = width**-0.5
        else:
            self._std = std
        super().__init__(vocab, width)

    def reset_parameters(self):
        """Draw all vectors from N(0, std²)."""
        nn.init.normal_(self.weight, std=self._std)
