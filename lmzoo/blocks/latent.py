r"""Models with one discrete latent z_t per token, summed out exactly.

    P(s_t | s_<t) = Σ_z P(z, s_t | s_<t)               LatentModel: any joint distribution
                  = Σ_z P(z | s_<t) P(s_t | z)         ComponentModel: P(v | z) without context

A subclass implements the joint distribution, or P(z | s_<t). The base classes derive the scores,
the next-token distribution and the posterior.
"""

from abc import abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lmzoo.blocks.layers import ComponentConfig, EmbeddingConfig, EmbeddingTable
from lmzoo.contract import LanguageModel, Task
from lmzoo.emissions.mixture import Components, FreeComponents
from lmzoo.functional.logspace import exact_log_mixture
from lmzoo.functional.parameters import DrawnModule
from lmzoo.types import Embeddings, Prefix, Tokens


class EmbeddedModel(DrawnModule, LanguageModel):
    """A model with a table of token embeddings."""

    Config = EmbeddingConfig

    def __init__(self, config: Any, task: Task):
        super().__init__(config, task)
        std = config.embedding_std
        self.embedding = EmbeddingTable(task.vocab, config.width, std)

    @property
    def table(self) -> Embeddings:
        """The vectors of all tokens."""
        return self.embedding.weight


class LatentModel(EmbeddedModel):
    """A model that sums over one discrete latent per scored token."""

    @abstractmethod
    def joint(self, tokens: Tokens) -> Float[Tensor, "B K T-1"]:
        """Return log P(z_t = k, s_t | s_<t) for t = 1..T-1."""

    @abstractmethod
    def next_joint(self, prefix: Prefix) -> Float[Tensor, "B K V"]:
        """Return log P(z = k, v | prefix) for every v."""

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        joint = self.joint(tokens)
        return joint.logsumexp(1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        joint = self.next_joint(prefix)
        scores = joint.logsumexp(1)
        # Rounding may leave a probability just above 1.
        return scores.clamp_max(0)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        joint = self.joint(tokens)
        return joint.softmax(1)


class ComponentModel(EmbeddedModel):
    """A context-dependent mixture of K distributions over tokens that ignore the context."""

    Config = ComponentConfig
    latent = "component"
    words: Components | FreeComponents

    @abstractmethod
    def log_weights(self, tokens: Prefix) -> Float[Tensor, "B t K"]:
        """Return log P(z_{i+1} | s_0..s_i), the latent of the token after position i."""

    def joint(self, tokens: Tokens) -> Float[Tensor, "B T-1 K"]:
        """Return log P(z_t = k, s_t | s_<t) for t = 1..T-1."""
        targets = tokens[:, 1:]
        token_log_probs = self.words.token_log_probs(targets, self.table)
        log_weights = self.log_weights(tokens[:, :-1])
        return log_weights + token_log_probs

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        joint = self.joint(tokens)
        return joint.logsumexp(-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        weights = self.log_weights(prefix)[:, -1]
        words = self.words.log_prob_table(self.table)
        mixed = exact_log_mixture(weights, words)
        # Rounding may leave a probability just above 1.
        return mixed.clamp_max(0)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        shares = self.joint(tokens).softmax(-1)
        # The components come before the positions in every posterior.
        return shares.transpose(1, 2)
