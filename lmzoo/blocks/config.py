"""Config fields that many models share."""

from typing import Annotated

from pydantic import Field

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange


@config
class EmbeddingConfig:
    """Fields of a model with a token embedding table (`lmzoo.blocks.layers`)."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    """Embedding size E. A recurrent model has the same state size, H = E."""
    embedding_std: float | None = Field(None, gt=0)
    """Standard deviation of the initial embeddings; None is 1/√E."""


@config
class ComponentConfig(EmbeddingConfig):
    """Fields of a model that mixes K word distributions (`lmzoo.emissions.components`)."""

    components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
    """Number K of components."""
