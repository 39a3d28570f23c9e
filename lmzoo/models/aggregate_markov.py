"""Aggregate Markov models: the last tokens choose a soft class, the class gives the next token."""

from enum import StrEnum
from functools import reduce
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.latent import ComponentModel, EmbeddedModel, LatentModel
from lmzoo.blocks.layers import ComponentConfig, EmbeddingConfig, Window
from lmzoo.blocks.unique import embed_unique
from lmzoo.cells.base import States
from lmzoo.contract import Task, model
from lmzoo.emissions.mixture import Components, FreeComponents
from lmzoo.functional.logspace import exact_log_mixture
from lmzoo.functional.normalise import Norm, normalise_sequence, normalise_vectors
from lmzoo.functional.sequence import previous_vectors
from lmzoo.functional.tied_softmax import log_normalisers
from lmzoo.types import Tokens, Vectors


@model(
    "aggregate_markov",
    aliases=("DLM10",),
    family="latent-markov",
    document="S0",
    source="Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0",
)
class AggregateMarkov(ComponentModel):
    """Aggregate Markov model: a bigram factored through K soft classes.

        P(z | s)      = softmax_z( A e(s) + a )
        P(v | z)      = softmax_v( Emb k_z )
        P(s_t | s_<t) = Σ_z P(s_t | z) P(z | s_{t-1})

    e(s) and k_z are (E), A is (K, E), Emb is (V, E). The bigram matrix is the product of a V x K
    and a K x V stochastic matrix, so its rank is at most K. K = 1 is a unigram.
    """

    context_length = 1

    def __init__(self, config: ComponentConfig, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.components
        self.gate = nn.Linear(width, count)
        self.words = Components(count, width, Norm.NONE, scaled=False)

    def log_weights(self, tokens: Tensor) -> Tensor:
        # The class depends on the last token only: each distinct token is mapped once.
        x, at = embed_unique(self.table, tokens)
        logits = self.gate(x)
        return at(logits.log_softmax(-1))


WordTable = StrEnum("WordTable", "TIED FREE")
"""How P(v | z) is parameterised: tied to the embeddings or a free table."""
Pad = StrEnum("Pad", "ONES UNIT")
"""The context vector before `<start>`: all 1, or all 1/√E (unit length)."""


@model(
    "lagged_aggregate_markov",
    aliases=("DLM20",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class LaggedAggregateMarkov(ComponentModel):
    """Aggregate Markov model whose K soft classes are chosen by the last W tokens.

        P(z | s_<t)   = softmax_z( Σ_{j=1..W} 2^-j (A_j c_j + a_j) )      c_j = N(e(s_{t-j}))
        P(v | z)      = softmax_v( exp(g_z) · Emb N(k_z) )                words = tied
        P(v | z)      = softmax_v( F_z )                                  words = free

    c_j and k_z are (E), A_j is (K, E), g is (K), F is (K, V), Emb is (V, E). The context before
    `<start>` is a constant vector that is not normalised: 1, or 1/√E. The S0 code of DLM22 divides
    by the standard deviation over time (norm=time_std), which leaks the future.
    """

    @config
    class Config(ComponentConfig):
        """Embedding, classes, lags, word table and normaliser."""

        window: Window = 4
        """Number W of lags."""
        words: WordTable = WordTable.TIED
        scaled: bool = False
        """Whether each component has a learned log scale g_z."""
        norm: Norm = Norm.NONE
        """Normaliser N of token and component vectors."""
        pad: Pad = Pad.ONES

        def __post_init__(self):
            if self.words is WordTable.FREE and self.scaled:
                raise UserError("scaled=True with words=free: a free table has no scales; drop one")

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.components
        # A normaliser over time reads the whole prefix.
        if config.norm.over_time:
            self.context_length = None
        else:
            self.context_length = config.window
        self.lags = nn.ModuleList()
        for _ in range(config.window):
            self.lags.append(nn.Linear(width, count))
        if config.words is WordTable.FREE:
            self.words = FreeComponents(count, task.vocab)
        else:
            self.words = Components(count, width, config.norm, scaled=config.scaled)

    @property
    def leaks(self) -> str:
        return self.config.norm.leak

    def log_weights(self, tokens: Tensor) -> Tensor:
        c = self.config
        embedded = self.embedding(tokens)
        x = normalise_sequence(embedded, c.norm)
        # The pad is not normalised: it is no token's vector.
        pad = 1.0
        # As a unit vector of equal numbers.
        if c.pad is not Pad.ONES:
            pad = c.width**-0.5
        context = previous_vectors(x, c.window, pad=pad)
        terms = []
        for j, lag in enumerate(self.lags):
            term = lag(context[:, :, j])
            # Halved from lag to lag, as the equation says; the weights are learned on top.
            share = 2 ** (j + 1)
            terms.append(term / share)
        logits = torch.stack(terms).sum(0)
        return logits.log_softmax(-1)


Objective = StrEnum("Objective", "EXACT BOUND")
Groups = Annotated[int, IntRange(1, 8), Field(ge=1)]
"""The score in training mode."""


@model(
    "factorial_aggregate_markov",
    aliases=("DLM19",),
    family="latent-markov",
    document="S0",
    source="Hinton 1999; S0",
)
class FactorialAggregateMarkov(EmbeddedModel):
    """Normalised product of G small aggregate Markov models.

        p_g(v | s)    = Σ_{j≤S} softmax_j( A_g e(s) + a_g ) softmax( Emb k_{g,j} )[v]
        P(v | s)      = Π_g p_g(v | s) / Σ_u Π_g p_g(u | s)
        log P(v | s) ≥ Σ_g log p_g(v | s)          the denominator is at most one

    G groups have S states each, K = G·S. e(s) and k_{g,j} are (E), A_g is (S, E), Emb is (V, E).
    The denominator is multilinear in the gates P(j_g | s); if there are at most as many joint
    states S^G as contexts, it is computed as

        Σ_u Π_g p_g(u | s)  = Σ_{j_1..j_G} Π_g P(j_g | s) · M[j_1..j_G]
        M[j_1..j_G]         = Σ_u Π_g P(u | j_g)          once for all contexts

    S0 trains and evaluates with the bound, which is not normalised. Here evaluation is always
    exact; training is exact too unless objective=bound.
    """

    latent = "state of a group"
    context_length = 1

    @config
    class Config(EmbeddingConfig):
        """Embedding, groups, states and objective."""

        groups: Groups = 2
        """Number G of groups."""
        states: States = 16
        """Number S of states per group."""
        objective: Objective = Objective.EXACT

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.groups * config.states
        self.gate = nn.Linear(width, count)
        self.words = Components(count, width, Norm.NONE, scaled=False)

    def latent_value_names(self) -> tuple[str, ...]:
        """Return the group and the state of each value, such as "0.1"."""
        names = []
        for group in range(self.config.groups):
            for state in range(self.config.states):
                names.append(f"{group}.{state}")
        return tuple(names)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        bound = self.bound(tokens)
        # Evaluation is always exact.
        if self.training and self.config.objective is Objective.BOUND:
            return bound
        # A product of distributions does not sum to one; log Z depends on the last token only.
        x, at = embed_unique(self.table, tokens[:, :-1])
        log_z = self.log_normaliser(x)[:, None]
        by_position = at(log_z)
        return bound - by_position.squeeze(-1)

    def bound(self, tokens: Tokens) -> Float[Tensor, "B T-1"]:
        """Return Σ_g log p_g(s_t | s_{t-1}), a lower bound of the log-probability."""
        joint = self._joint(tokens)
        groups = joint.logsumexp(-1)
        return groups.sum(-1)

    def log_normaliser(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N"]:
        """Return log Σ_u Π_g p_g(u | s) for the embedding x of each token s."""
        # Both ways are exact; the product over all states is shared by the rows.
        groups = self.config.groups
        joint_states = self.config.states**groups
        if joint_states > len(x):
            dense = self._product(x)
            return dense.logsumexp(-1)
        words = self.words.log_prob_table(self.table).T  # V K
        by_group = words.unflatten(1, (groups, -1))
        mass = _joint_states(by_group).logsumexp(0)
        gates = _joint_states(self._log_gates(x))
        joint = gates + mass
        return joint.logsumexp(-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        x = self.embedding(prefix[:, -1])
        logits = self._product(x)
        return logits.log_softmax(-1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return each group's posterior over its states divided by G, so that they sum to 1."""
        joint = self._joint(tokens)
        by_group = joint.softmax(-1)
        # One latent a token: a group, all with equal shares, and its state.
        by_group = by_group / self.config.groups
        shares = by_group.flatten(2)
        return shares.transpose(1, 2)

    def _joint(self, tokens: Tokens) -> Float[Tensor, "B T-1 G S"]:
        """Return log( P(j | s_{t-1}) p_{g,j}(s_t) )."""
        targets = tokens[:, 1:]
        words = self.words.token_log_probs(targets, self.table)
        x = self.embedding(tokens[:, :-1])
        gates = self._log_gates(x)
        return gates + words.unflatten(-1, (self.config.groups, -1))

    def _product(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N V"]:
        gates = self._log_gates(x).transpose(0, 1)  # G N S
        words = self.words.log_prob_table(self.table)
        by_group = words.unflatten(0, (self.config.groups, -1))
        scores = exact_log_mixture(gates, by_group)
        return scores.sum(0)

    def _log_gates(self, x: Vectors) -> Float[Tensor, "*N G S"]:
        logits = self.gate(x)
        by_group = logits.unflatten(-1, (self.config.groups, -1))
        return by_group.log_softmax(-1)


def _joint_states(
    by_group: Float[Tensor, "N G S"],
) -> Float[Tensor, "N S**G"]:
    """Return the sum over groups for every choice of one state per group."""

    def add_group(states: Tensor, group: Tensor) -> Tensor:
        pairs = states[:, :, None] + group[:, None]
        return pairs.flatten(1)

    return reduce(add_group, by_group.unbind(1))


Prototypes = Annotated[int, IntRange(8, 512, log=True), Field(ge=0)]


@model(
    "prototype_rotation_mixture",
    aliases=("DLM18",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class PrototypeRotationMixture(LatentModel):
    """Mixture of one linear map of the previous token and K prototype vectors.

        w             = softmax( Lin(E → K+1)( N(c_1) ) )
        P(s_t | s_<t) = w_0 softmax( Emb (M N(c_1) + b) )[s_t]
                      + Σ_{k=1..K} w_k softmax( Emb N(k_k) )[s_t]

    c_1 = e(s_{t-1}), b and the prototypes k_k are (E), M is (E, E), w is (K+1), Emb is (V, E).
    Without the map this is the aggregate Markov model; without prototypes (K = 0) it is the
    log-bilinear bigram.
    """

    latent = "map or prototype"
    context_length = 1

    @config
    class Config(EmbeddingConfig):
        """Embedding, number of prototypes and normaliser."""

        components: Prototypes = 32
        """Number K of prototypes."""
        norm: Norm = Norm.NONE
        """Normaliser N of the previous token and the prototypes, not of the mapped vector."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.components
        # One more than prototypes: the map.
        self.gate = nn.Linear(width, count + 1)
        self.map = nn.Linear(width, width)
        self.prototypes = Components(count, width, config.norm, scaled=False)

    def joint(self, tokens: Tensor) -> Tensor:
        targets = tokens[:, 1:]
        table = self.table
        x, at = embed_unique(table, tokens[:, :-1])
        x = normalise_vectors(x, self.config.norm)
        y = self.map(x)
        log_z = log_normalisers(y, table)[:, None]
        products = at(y) * table[targets]
        logits = products.sum(-1, keepdim=True)
        mapped = logits - at(log_z)
        fixed = self.prototypes.token_log_probs(targets, table)
        scores = torch.cat([mapped, fixed], -1)
        # The gate reads each distinct token once; `at` copies its row to the token's positions.
        weights = self.gate(x).log_softmax(-1)
        joint = at(weights) + scores
        return joint.transpose(1, 2)

    def next_joint(self, prefix: Tensor) -> Tensor:
        table = self.table
        last = prefix[:, -1]
        x = normalise_vectors(table[last], self.config.norm)
        logits = self.map(x) @ table.T
        mapped = logits.log_softmax(-1)
        prototypes = self.prototypes.log_prob_table(table)
        # They do not read the context: the same for all rows.
        prototypes = prototypes.expand(len(x), -1, -1)
        scores = torch.cat([mapped[:, None], prototypes], 1)
        weights = self.gate(x).log_softmax(-1)
        return weights[..., None] + scores
