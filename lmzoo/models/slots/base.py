r"""What the slot models share: N pointers, what they point at, a mixture emission.

    ê_j     = N(e(s_j))
    b_{n,t} = Σ_j p_n(j | t) ê_j                  the slot's value: a mean, not a sample
    P(z_t | s_<t) = softmax( A read(b_1..b_N) )
    P(s_t | s_<t) = Σ_z P(z_t | s_<t) P(s_t | z)

Mean field: the pointers are not summed out, their values are averaged, so this is no
marginal likelihood of where they point; it is exactly normalised all the same.

S0; zoo.md DLM30-35.
"""

from abc import abstractmethod
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task
from lmzoo.emissions.components import Components
from lmzoo.errors import UserError
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.search_space import IntRange


@config
class SlotConfig:
    """The sizes every slot model has."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
    slots: Annotated[int, IntRange(2, 8)] = Field(4, ge=1)
    norm: Norm = Norm.RMS
    """On token embeddings and on component vectors, each by itself."""
    embedding_std: float | None = Field(None, gt=0)
    """Spread of the initial embeddings; None is 1/√E."""

    @field_validator("norm")
    @classmethod
    def _no_spread_over_time(cls, norm: Norm) -> Norm:
        if norm.over_time:
            raise UserError(f"slots normalise single vectors: use none, rms, l2 or std, got {norm}")
        return norm


class SlotModel(LanguageModel):
    """Pointers are the subclass's; `gate_width` is the size of what `read` returns."""

    latent = "source of the first slot"

    def __init__(self, config: Any, task: Task, gate_width: int) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.components = Components(config.components, config.width, config.norm, scaled=True)
        self.gate = nn.Linear(gate_width, config.components)

    @abstractmethod
    def pointers(self, tokens: Tensor, seen: Float[Tensor, "B S E"]) -> Float[Tensor, "B N S S"]:
        """p_n(j | t) of all slots, last axis the source, given ê of the sources."""

    def read(self, slots: Float[Tensor, "B N S E"]) -> Float[Tensor, "B S G"]:
        """The slots side by side."""
        return slots.transpose(1, 2).flatten(2)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        words = self.components.word_scores(tokens[:, 1:], self.embedding.weight)
        return torch.logsumexp(self.log_components(tokens[:, :-1]) + words, dim=-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        words = self.components.word_table(self.embedding.weight)
        return log_mixture(self.log_components(prefix)[:, -1].exp(), words)

    def log_components(self, sources: Tensor) -> Float[Tensor, "B S K"]:
        """Log P(z | the sources up to each)."""
        slots = self.source_pointers(sources) @ self.seen(sources)[:, None]
        return torch.log_softmax(self.gate(self.read(slots)), dim=-1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "B S S"]:
        """p_1(source | target): in a mean field, s_t itself does not inform it."""
        return self.source_pointers(tokens[:, :-1])[:, 0].mT

    def source_pointers(self, sources: Tensor) -> Float[Tensor, "B N S S"]:
        """`pointers` of these tokens, which must not be more than the model has places for.

        Raises:
            UserError: the sequence is longer than the model was built for.
        """
        places = self.task.length - 1
        if sources.shape[1] > places:
            raise UserError(
                f"{self.name} has places for {self.task.length} tokens, got {sources.shape[1] + 1}"
            )
        return self.pointers(sources, self.seen(sources))

    def seen(self, sources: Tensor) -> Float[Tensor, "B S E"]:
        """ê."""
        return normalise_vectors(self.embedding(sources), self.config.norm)
