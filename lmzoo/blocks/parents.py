r"""Models in which each token descends from one earlier token, its parent a_t.

    P(s_t | s_<t) = Σ_{a<t} P(a | t) P(s_t | s_a)
    P(a | t)      = softmax_{a<t}( Λ[a, t] )           Alignment

All pairs are scored at once, (B, parent, child); the prior is minus infinity where the
parent would not be earlier.

S0 DLM2, 5, 6, 13; zoo.md 2.
"""

from abc import abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.per_word import per_word
from lmzoo.errors import UserError
from lmzoo.functional.draw import uniform
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.types import Embeddings, Prefix, Tokens


def earlier(count: int, device: torch.device) -> Bool[Tensor, "{count} {count}"]:
    """Whether token a is before child t: row a = 0.., column t = 1.. ."""
    return torch.ones(count, count, dtype=torch.bool, device=device).triu()


def within(length: int, count: int) -> None:
    """Refuse children beyond the positions a prior over positions was made for."""
    if count >= length:
        raise UserError(
            f"a prior over {length} positions cannot score a token after {count}; "
            f"use sequences of at most {length} tokens or a longer task.length"
        )


class Alignment(nn.Module):
    """A learned prior over parents by absolute positions of parent and child."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.empty(length, length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Λ from U(T)."""
        with torch.no_grad():
            self.logits.copy_(uniform(tuple(self.logits.shape), len(self.logits)))

    def forward(self, count: int) -> Float[Tensor, "{count} {count}"]:
        """Log P(a | t) for a = 0..count-1, t = 1..count; columns sum to one."""
        within(len(self.logits), count)
        logits = self.logits[:count, 1 : count + 1]
        logits = logits.masked_fill(~earlier(count, logits.device), -torch.inf)
        return torch.log_softmax(logits, dim=0)


class ParentModel(LatentModel):
    """A mixture over parents; K = parents (times arc types where a row has them)."""

    latent = "parent"
    embedding: Table

    @abstractmethod
    def log_prior(self, count: int) -> Float[Tensor, "K {count}"]:
        """Log P(a | t) for t = 1..count; minus infinity unless a < t."""

    @abstractmethod
    def pair_scores(self, parents: Prefix, targets: Prefix) -> Float[Tensor, "B K t"]:
        """Log P(target | parent) of every pair."""

    @abstractmethod
    def child_scores(self, parents: Prefix) -> Float[Tensor, "B K V"]:
        """Log P(v | parent) for every v."""

    def joint(self, tokens: Tokens) -> Tensor:
        pairs = self.pair_scores(tokens[:, :-1], tokens[:, 1:])
        return self.log_prior(pairs.shape[-1]) + pairs

    def next_joint(self, prefix: Tensor) -> Tensor:
        return self.log_prior(prefix.shape[1])[:, -1:] + self.child_scores(prefix)

    def prior(self) -> Tensor:
        return self.log_prior(self.task.length - 1)


def tied_pairs(
    transition: nn.Linear, table: Embeddings, parents: Prefix, targets: Prefix
) -> Float[Tensor, "B AR t"]:
    """Log softmax(Emb y_ar) at every target, (y_a1 .. y_aR) = transition(e(s_a))."""
    x, at = per_word(table, parents)
    y = transition(x)
    log_z = log_normalisers(y.unflatten(1, (-1, x.shape[1])), table)  # N R
    by_type = at(y).unflatten(2, (log_z.shape[1], -1)).flatten(1, 2)
    return by_type @ table[targets].transpose(1, 2) - at(log_z).flatten(1)[..., None]
