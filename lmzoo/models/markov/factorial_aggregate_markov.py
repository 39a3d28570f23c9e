r"""A product of G aggregate Markov models: a factorised state.

    p_g(v | s)    = Σ_{j≤S} softmax_j( A_g e(s) + a_g ) softmax( Emb k_{g,j} )[v]
    P(v | s)      = Π_g p_g(v | s) / Σ_u Π_g p_g(u | s)
    log P(v | s) ≥ Σ_g log p_g(v | s)          the denominator is at most one

The denominator is multilinear in the gates, so where joint states are few it is

    Σ_u Π_g p_g(u | s)  = Σ_{j_1..j_G} Π_g P(j_g | s) · M[j_1..j_G]
    M[j_1..j_G]         = Σ_u Π_g P(u | j_g)          once for all contexts

S0 trains and evaluates by the bound, which is not normalised. Here evaluation is always
exact, and so is training unless `objective=bound`.

Hinton 1999 (products of experts); S0 DLM19; zoo.md 2.
"""

from enum import StrEnum
from functools import reduce
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.per_word import per_word
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange
from lmzoo.types import Tokens


class Objective(StrEnum):
    """What is maximised in training mode."""

    EXACT = "exact"
    BOUND = "bound"


@model(
    "factorial_aggregate_markov", aliases=("DLM19",), family="latent-markov", document="S0",
    source="Hinton 1999; S0",
)  # fmt: skip
class FactorialAggregateMarkov(LanguageModel):
    """A product of G small aggregate Markov models, normalised."""

    latent = "state of a group"

    @config
    class Config:
        """How wide the vectors are, how many groups of how many states there are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        groups: Annotated[int, IntRange(1, 8)] = Field(2, ge=1)
        states: Annotated[int, IntRange(4, 64, log=True)] = Field(16, ge=1)
        """Per group; K = groups x states."""
        objective: Objective = Objective.EXACT
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        count = config.groups * config.states
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.gate = nn.Linear(config.width, count)
        self.words = Components(count, config.width, Norm.NONE, scaled=False)

    @property
    def state_size(self) -> int | None:
        return self.config.width

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        bound = self.bound(tokens)
        if self.training and self.config.objective is Objective.BOUND:
            return bound
        x, at = per_word(self.embedding.weight, tokens[:, :-1])
        return bound - at(self.log_normaliser(x)[:, None]).squeeze(-1)

    def bound(self, tokens: Tokens) -> Float[Tensor, "B T-1"]:
        """Σ_g log p_g(s_t | s_{t-1}), at most the log-probability."""
        return torch.logsumexp(self._joint(tokens), dim=-1).sum(-1)

    def log_normaliser(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N"]:
        """Log Σ_u Π_g p_g(u | s) for the vector of each s."""
        if self.config.states**self.config.groups > len(x):
            return torch.logsumexp(self._product(x), dim=-1)
        words = self.words.word_table(self.embedding.weight).T  # V K
        mass = torch.logsumexp(_joint_states(words.unflatten(1, (self.config.groups, -1))), dim=0)
        return torch.logsumexp(_joint_states(self._log_gates(x)) + mass, dim=-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return torch.log_softmax(self._product(self.embedding(prefix[:, -1])), dim=-1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Each group's posterior over its states, divided by G so that all sum to one."""
        by_group = torch.softmax(self._joint(tokens), dim=-1) / self.config.groups
        return by_group.flatten(2).transpose(1, 2)

    def _joint(self, tokens: Tokens) -> Float[Tensor, "B T-1 G S"]:
        """log( P(j | s_{t-1}) p_{g,j}(s_t) )."""
        words = self.words.word_scores(tokens[:, 1:], self.embedding.weight)
        gates = self._log_gates(self.embedding(tokens[:, :-1]))
        return gates + words.unflatten(-1, (self.config.groups, -1))

    def _product(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N V"]:
        """Σ_g log p_g(v | s) for every v."""
        gates = self._log_gates(x).exp().transpose(0, 1)  # G N S
        words = self.words.word_table(self.embedding.weight)
        return log_mixture(gates, words.unflatten(0, (self.config.groups, -1))).sum(0)

    def _log_gates(self, x: Float[Tensor, "*N E"]) -> Float[Tensor, "*N G S"]:
        logits = self.gate(x).unflatten(-1, (self.config.groups, -1))
        return torch.log_softmax(logits, dim=-1)


def _joint_states(by_group: Float[Tensor, "N G S"]) -> Float[Tensor, "N S**G"]:
    """Log Π_g of every choice of one state per group."""
    return reduce(lambda a, b: (a[:, :, None] + b[:, None]).flatten(1), by_group.unbind(1))
