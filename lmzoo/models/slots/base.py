r"""Base class of the slot models: M soft pointers, their values, and a mixture emission.

    ê_j     = N(e(s_j))
    b_{n,t} = Σ_j p_n(j | t) ê_j                  value of slot n = 1..M
    P(z_t | s_<t) = softmax( A read(b_{1,t}..b_{M,t}) )
    P(s_t | s_<t) = Σ_z P(z_t | s_<t) P(s_t | z)

ê_j and b_{n,t} are (E), p_n is a distribution over positions j < t. This is a mean-field model: it
averages the values that a pointer may select instead of summing over pointer positions. It is
exactly normalised over s_t.

Source: S0 (DLM30-35).
"""

from abc import abstractmethod
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn

from lmzoo.blocks.config import ComponentConfig
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task
from lmzoo.emissions.components import Components
from lmzoo.errors import UserError
from lmzoo.functional.logspace import exact_log_mixture
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.search_space import IntRange


@config
class SlotConfig(ComponentConfig):
    """Embedding, components, slots and normaliser."""

    slots: Annotated[int, IntRange(2, 8)] = Field(4, ge=1)
    """Number M of slots."""
    norm: Norm = Norm.RMS
    """Normaliser N of each token vector and each component vector."""

    @field_validator("norm")
    @classmethod
    def _refuse_norm_over_time(cls, norm: Norm) -> Norm:
        if norm.over_time:
            raise UserError(f"slots normalise single vectors: use none, rms, l2 or std, got {norm}")
        return norm


class SlotModel(LanguageModel):
    """Base class of slot models: a subclass defines `pointers`.

    Args:
        config: A `SlotConfig`.
        task: Sizes of the corpus.
        gate_width: Size of the vectors that `read` returns.
    """

    latent = "source of the first slot"

    def __init__(self, config: Any, task: Task, gate_width: int) -> None:
        super().__init__(config, task)
        self.embedding = EmbeddingTable(task.vocab, config.width, config.embedding_std)
        self.components = Components(config.components, config.width, config.norm, scaled=True)
        self.gate = nn.Linear(gate_width, config.components)

    @abstractmethod
    def pointers(self, tokens: Tensor, vectors: Float[Tensor, "B S E"]) -> Float[Tensor, "B N S S"]:
        """Return p_n(j | t) of every slot from the source tokens and their vectors ê.

        The last axis is the source position j, the one before it the target t.
        """

    def read(self, slots: Float[Tensor, "B N S E"]) -> Float[Tensor, "B S G"]:
        """Return the slot values as one vector per target: their concatenation."""
        return slots.transpose(1, 2).flatten(2)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        scores = self.components.token_log_probs(tokens[:, 1:], self.embedding.weight)
        return torch.logsumexp(self.log_components(tokens[:, :-1]) + scores, dim=-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        words = self.components.log_prob_table(self.embedding.weight)
        return exact_log_mixture(self.log_components(prefix)[:, -1], words).clamp_max(0)

    def log_components(self, sources: Tensor) -> Float[Tensor, "B S K"]:
        """Return log P(z | s_0..s_j) of the token after each source position j."""
        slots = self.source_pointers(sources) @ self.source_vectors(sources)[:, None]
        return torch.log_softmax(self.gate(self.read(slots)), dim=-1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "B S S"]:
        """Return p_1(source | target), which does not depend on s_t (mean field)."""
        return self.source_pointers(tokens[:, :-1])[:, 0].mT

    def source_pointers(self, sources: Tensor) -> Float[Tensor, "B N S S"]:
        """Return `pointers` of these tokens.

        Raises:
            UserError: the sequence is longer than the task's.
        """
        if sources.shape[1] >= self.task.length:
            raise UserError(
                f"{self.name} is built for {self.task.length} tokens, got {sources.shape[1] + 1}; "
                "use shorter sequences or a longer task.length"
            )
        return self.pointers(sources, self.source_vectors(sources))

    def source_vectors(self, sources: Tensor) -> Float[Tensor, "B S E"]:
        """Return ê of each token."""
        return normalise_vectors(self.embedding(sources), self.config.norm)
