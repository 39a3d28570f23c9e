r"""Latent-parent bigram with a uniform prior over the last W tokens.

    P(s_t | s_<t) = Σ_a P(a | t) softmax( Emb (M e(s_a) + b) )[s_t]
    P(a | t)      = 1 / min(W, t)        for a = t-W .. t-1, a ≥ 0

a is the position of the parent, e(s) and b are (E), M is (E, E), Emb is (V, E). W = 1 is the
log-bilinear bigram. The S0 code has no window (window=None).

Source: S0 (DLM2).
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.parents import TiedParentModel, earlier_mask
from lmzoo.contract import Task, model


@model(
    "latent_parent_uniform", aliases=("DLM2",), family="latent-markov", document="S0", source="S0",
)  # fmt: skip
class LatentParentUniform(TiedParentModel):
    """Bigram mixed uniformly over the last W tokens."""

    @config
    class Config(EmbeddingConfig):
        """Embedding and window."""

        window: Annotated[int | None, IntRange(1, 8)] = Field(5, ge=1)
        """Number W of possible parents; None means all earlier tokens."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.context_length = config.window

    def log_prior(self, count: int) -> Tensor:
        table = self.embedding.weight
        allowed = earlier_mask(count, table.device)
        if self.config.window is not None:
            allowed = allowed.tril(self.config.window - 1)
        prior = table.new_zeros(count, count).masked_fill(~allowed, -torch.inf)
        return torch.log_softmax(prior, dim=0)
