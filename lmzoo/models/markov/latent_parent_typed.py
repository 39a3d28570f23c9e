r"""Latent-parent bigram with typed arcs: a parent token and one of R arc types.

    P(s_t | s_<t) = Σ_{a<t} P(a | t) Σ_r P(r) softmax( Emb (M_r e(s_a) + b_r) )[s_t]
    P(a | t)      = softmax_{a<t}( Λ[a, t] )
    P(r)          = softmax_r( ρ_r )              arcs = shared
    P(r | a, t)   = softmax_r( ρ[r, a, t] )       arcs = positional

a is the position of the parent, r the arc type. Λ is (T, T), ρ is (R) or (R, T, T), e(s) and b_r
are (E), M_r is (E, E), Emb is (V, E). The latent is the pair (a, r), numbered a·R + r. R = 1 is
`latent_parent_positional`. S0 does not define the prior over types.

Source: S0 (DLM6, text only).
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.parents import Alignment, TiedParentModel
from lmzoo.contract import Task, model
from lmzoo.functional.initialisers import draw_uniform

Arcs = StrEnum("Arcs", "SHARED POSITIONAL")
"""What the prior over arc types depends on."""


@model("latent_parent_typed", aliases=("DLM6",), family="latent-markov", document="S0", source="S0")
class LatentParentTyped(TiedParentModel):
    """Mixture of R bigrams over all earlier tokens with a learned alignment."""

    latent = "parent and arc type"

    @config
    class Config(EmbeddingConfig):
        """Embedding and arc types."""

        types: Annotated[int, IntRange(1, 8)] = Field(2, ge=1)
        """Number R of types. Each computes a softmax over the vocabulary per distinct token."""
        arcs: Arcs = Arcs.SHARED

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task, config.types)
        length = task.length
        positions = (1, 1) if config.arcs is Arcs.SHARED else (length, length)
        self.alignment = Alignment(length)
        self.types = nn.Parameter(torch.empty(config.types, *positions))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the type logits ρ from U(R)."""
        draw_uniform(self.types, len(self.types))

    @property
    def unused(self) -> int:
        """Positional type logits that no score depends on: a ≥ t, and t = 0."""
        length = self.types.shape[-1]
        return 0 if length == 1 else len(self.types) * (length**2 - length * (length - 1) // 2)

    def log_prior(self, count: int) -> Tensor:
        parents = self.alignment(count)
        types = torch.log_softmax(self.types, dim=0)
        if self.config.arcs is Arcs.POSITIONAL:
            types = types[:, :count, 1 : count + 1]
        return (parents[:, None] + types.transpose(0, 1)).flatten(0, 1)
