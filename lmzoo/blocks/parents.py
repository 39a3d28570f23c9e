r"""Models in which each token depends on one earlier token, its parent a_t.

    P(s_t | s_<t) = Σ_{a<t} P(a | t) P(s_t | s_a)
    P(a | t)      = softmax_{a<t}( Λ[a, t] )           Alignment

All pairs are scored at once, (B, parent, child). The log prior is minus infinity unless the parent
precedes the child.

Source: S0 (DLM2, DLM5, DLM6, DLM13).
"""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.base.errors import UserError
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.unique import embed_unique
from lmzoo.contract import Task
from lmzoo.functional.initialisers import draw_uniform
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.types import Prefix, Tokens


def earlier_mask(count: int, device: torch.device) -> Bool[Tensor, "{count} {count}"]:
    """Return a mask, True where parent a (row, 0..) precedes child t (column, 1..)."""
    return torch.ones(count, count, dtype=torch.bool, device=device).triu()


def check_length(length: int, count: int) -> None:
    """Raise a UserError if child t = `count` exceeds the positions 0..length-1 of a prior."""
    if count >= length:
        raise UserError(
            f"a prior over {length} positions cannot score a token at position {count}; "
            f"use at most {length} tokens or build the model with a longer task.length"
        )


class Alignment(nn.Module):
    """A learned prior over parents, by the absolute positions of parent and child."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.empty(length, length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw Λ from U(T)."""
        draw_uniform(self.logits, len(self.logits))

    @property
    def unused(self) -> int:
        """Logits that no score depends on: a ≥ t, t = 0, and the only parent of t = 1."""
        length = len(self.logits)
        return length**2 - (length * (length - 1) // 2 - 1)

    def forward(self, count: int) -> Float[Tensor, "{count} {count}"]:
        """Return log P(a | t) for a = 0..count-1 and t = 1..count; each column sums to one."""
        check_length(len(self.logits), count)
        logits = self.logits[:count, 1 : count + 1]
        logits = logits.masked_fill(~earlier_mask(count, logits.device), -torch.inf)
        return torch.log_softmax(logits, dim=0)


class ParentModel(LatentModel):
    """A mixture over parents; K = number of parents, times the arc types of typed models."""

    latent = "parent"

    @abstractmethod
    def log_prior(self, count: int) -> Float[Tensor, "K {count}"]:
        """Return log P(a | t) for t = 1..count; minus infinity unless a < t."""

    @abstractmethod
    def pair_scores(self, parents: Prefix, targets: Prefix) -> Float[Tensor, "B K t"]:
        """Return log P(target | parent) for every pair."""

    @abstractmethod
    def child_scores(self, parents: Prefix) -> Float[Tensor, "B K V"]:
        """Return log P(v | parent) for every v."""

    def joint(self, tokens: Tokens) -> Tensor:
        pairs = self.pair_scores(tokens[:, :-1], tokens[:, 1:])
        return self.log_prior(pairs.shape[-1]) + pairs

    def next_joint(self, prefix: Tensor) -> Tensor:
        return self.log_prior(prefix.shape[1])[:, -1:] + self.child_scores(prefix)

    def prior(self) -> Tensor:
        return self.log_prior(self.task.length - 1)


class TiedParentModel(ParentModel):
    """P(v | s_a, r) = softmax(Emb y_ar)_v with (y_a1 .. y_aR) = (M_1 .. M_R) e(s_a) + b."""

    def __init__(self, config: Any, task: Task, types: int = 1) -> None:
        super().__init__(config, task)
        self.transition = nn.Linear(config.width, types * config.width)

    def pair_scores(self, parents: Tensor, targets: Tensor) -> Float[Tensor, "B AR t"]:
        table = self.embedding.weight
        x, at = embed_unique(table, parents)
        y = self.transition(x)
        log_z = log_normalisers(y.unflatten(1, (-1, x.shape[1])), table)  # N R
        by_type = at(y).unflatten(2, (log_z.shape[1], -1)).flatten(1, 2)
        return by_type @ table[targets].transpose(1, 2) - at(log_z).flatten(1)[..., None]

    def child_scores(self, parents: Tensor) -> Float[Tensor, "B AR V"]:
        y = self.transition(self.embedding(parents)).unflatten(2, (-1, self.config.width))
        return torch.log_softmax(y.flatten(1, 2) @ self.embedding.weight.T, dim=-1)
