r"""Factorial aggregate Markov model: a normalised product of G aggregate Markov models.

    p_g(v | s)    = Σ_{j≤S} softmax_j( A_g e(s) + a_g ) softmax( Emb k_{g,j} )[v]
    P(v | s)      = Π_g p_g(v | s) / Σ_u Π_g p_g(u | s)
    log P(v | s) ≥ Σ_g log p_g(v | s)          the denominator is at most one

G groups have S states each, K = G·S. e(s) and k_{g,j} are (E), A_g is (S, E), Emb is (V, E). The
denominator is multilinear in the gates P(j_g | s); if there are at most as many joint states S^G as
contexts, it is computed as

    Σ_u Π_g p_g(u | s)  = Σ_{j_1..j_G} Π_g P(j_g | s) · M[j_1..j_G]
    M[j_1..j_G]         = Σ_u Π_g P(u | j_g)          once for all contexts

S0 trains and evaluates with the bound, which is not normalised. Here evaluation is always exact;
training is exact too unless objective=bound.

Source: Hinton 1999 (products of experts); S0 (DLM19).
"""

from enum import StrEnum
from functools import reduce
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.unique import embed_unique
from lmzoo.contract import LanguageModel, Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.logspace import exact_log_mixture
from lmzoo.functional.normalise import Norm
from lmzoo.types import Tokens

Objective = StrEnum("Objective", "EXACT BOUND")
"""The score in training mode."""


@model(
    "factorial_aggregate_markov", aliases=("DLM19",), family="latent-markov", document="S0",
    source="Hinton 1999; S0",
)  # fmt: skip
class FactorialAggregateMarkov(LanguageModel):
    """Normalised product of G small aggregate Markov models."""

    latent = "state of a group"
    context_length = 1

    @config
    class Config(EmbeddingConfig):
        """Embedding, groups, states and objective."""

        groups: Annotated[int, IntRange(1, 8)] = Field(2, ge=1)
        """Number G of groups."""
        states: Annotated[int, IntRange(4, 64, log=True)] = Field(16, ge=1)
        """Number S of states per group."""
        objective: Objective = Objective.EXACT

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        count = config.groups * config.states
        self.embedding = EmbeddingTable(task.vocab, config.width, config.embedding_std)
        self.gate = nn.Linear(config.width, count)
        self.words = Components(count, config.width, Norm.NONE, scaled=False)

    def latent_value_names(self) -> tuple[str, ...]:
        """Return the group and the state of each value, such as "0.1"."""
        groups, states = range(self.config.groups), range(self.config.states)
        return tuple(f"{group}.{state}" for group in groups for state in states)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        bound = self.bound(tokens)
        if self.training and self.config.objective is Objective.BOUND:
            return bound
        x, at = embed_unique(self.embedding.weight, tokens[:, :-1])
        return bound - at(self.log_normaliser(x)[:, None]).squeeze(-1)

    def bound(self, tokens: Tokens) -> Float[Tensor, "B T-1"]:
        """Return Σ_g log p_g(s_t | s_{t-1}), a lower bound of the log-probability."""
        return torch.logsumexp(self._joint(tokens), dim=-1).sum(-1)

    def log_normaliser(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N"]:
        """Return log Σ_u Π_g p_g(u | s) for the embedding x of each token s."""
        if self.config.states**self.config.groups > len(x):
            return torch.logsumexp(self._product(x), dim=-1)
        words = self.words.log_prob_table(self.embedding.weight).T  # V K
        mass = torch.logsumexp(_joint_states(words.unflatten(1, (self.config.groups, -1))), dim=0)
        return torch.logsumexp(_joint_states(self._log_gates(x)) + mass, dim=-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return torch.log_softmax(self._product(self.embedding(prefix[:, -1])), dim=-1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return each group's posterior over its states divided by G, so that they sum to 1."""
        by_group = torch.softmax(self._joint(tokens), dim=-1) / self.config.groups
        return by_group.flatten(2).transpose(1, 2)

    def _joint(self, tokens: Tokens) -> Float[Tensor, "B T-1 G S"]:
        """Return log( P(j | s_{t-1}) p_{g,j}(s_t) )."""
        words = self.words.token_log_probs(tokens[:, 1:], self.embedding.weight)
        gates = self._log_gates(self.embedding(tokens[:, :-1]))
        return gates + words.unflatten(-1, (self.config.groups, -1))

    def _product(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N V"]:
        """Return Σ_g log p_g(v | s) for every token v."""
        gates = self._log_gates(x).transpose(0, 1)  # G N S
        words = self.words.log_prob_table(self.embedding.weight)
        return exact_log_mixture(gates, words.unflatten(0, (self.config.groups, -1))).sum(0)

    def _log_gates(self, x: Float[Tensor, "*N E"]) -> Float[Tensor, "*N G S"]:
        logits = self.gate(x).unflatten(-1, (self.config.groups, -1))
        return torch.log_softmax(logits, dim=-1)


def _joint_states(by_group: Float[Tensor, "N G S"]) -> Float[Tensor, "N S**G"]:
    """Return the sum over groups for every choice of one state per group."""
    return reduce(lambda a, b: (a[:, :, None] + b[:, None]).flatten(1), by_group.unbind(1))
