r"""Models with a discrete latent z_t that is summed out at every step.

    P(s_t | s_<t) = Σ_z P(z, s_t | s_<t)               LatentModel: any joint
                  = Σ_z P(z | s_<t) P(s_t | z)         ComponentModel: fixed P(v | z)

A subclass gives the joint, or P(z | s_<t); scores, next-token distribution and
posterior follow.
"""

from abc import abstractmethod
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.blocks.embedding import Table
from lmzoo.contract import LanguageModel
from lmzoo.functional.logspace import log_mixture
from lmzoo.types import Embeddings, Prefix, Tokens


class LatentModel(LanguageModel):
    """A normalised sum over one discrete latent per scored token."""

    @abstractmethod
    def joint(self, tokens: Tokens) -> Float[Tensor, "B K T-1"]:
        """Log P(z_t = k, s_t | s_<t) for t = 1..T-1."""

    @abstractmethod
    def next_joint(self, prefix: Prefix) -> Float[Tensor, "B K V"]:
        """Log P(z = k, v | prefix) for every v."""

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return torch.logsumexp(self.joint(tokens), dim=1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return torch.logsumexp(self.next_joint(prefix), dim=1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return torch.softmax(self.joint(tokens), dim=1)


class Words(Protocol):
    """K distributions over words (`emissions/components.py`)."""

    def word_scores(self, targets: Tensor, table: Tensor) -> Tensor: ...
    def word_table(self, table: Tensor) -> Tensor: ...


class ComponentModel(LanguageModel):
    """The context chooses among K distributions over words that do not depend on it."""

    latent = "component"
    embedding: Table
    words: Words

    @abstractmethod
    def log_weights(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "B t K"]:
        """Log P(z | s_0..s_i) of the token after each position i."""

    def joint(self, tokens: Tokens) -> Float[Tensor, "B T-1 K"]:
        """Log P(z_t = k, s_t | s_<t) for t = 1..T-1."""
        words = self.words.word_scores(tokens[:, 1:], self.table)
        return self.log_weights(tokens[:, :-1]) + words

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return torch.logsumexp(self.joint(tokens), dim=-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        weights = self.log_weights(prefix)[:, -1].exp()
        return log_mixture(weights, self.words.word_table(self.table))

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return torch.softmax(self.joint(tokens), dim=-1).transpose(1, 2)

    @property
    def table(self) -> Embeddings:
        """The embedding matrix."""
        return self.embedding.weight
