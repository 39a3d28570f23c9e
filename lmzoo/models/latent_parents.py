"""Models in which each token depends on earlier tokens, its parents."""

from abc import abstractmethod
from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.layers import ComponentConfig, EmbeddingConfig
from lmzoo.blocks.unique import embed_unique
from lmzoo.contract import Task, model
from lmzoo.emissions.mixture import Components
from lmzoo.functional.logspace import log_floored, log_mixture
from lmzoo.functional.normalise import Norm
from lmzoo.functional.parameters import DrawnModule
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.functional.tied_softmax import log_normalisers
from lmzoo.types import Prefix, Tokens


def earlier_mask(count: int, device: torch.device) -> Bool[Tensor, "{count} {count}"]:
    """Return a mask, True where parent a (row, 0..) precedes child t (column, 1..)."""
    return causal_mask(count, device).T


class Alignment(DrawnModule):
    """A learned prior over parents, by the absolute positions of parent and child."""

    def __init__(self, length: int):
        super().__init__()
        self.set_drawn(length, logits=(length, length))

    @property
    def unused(self) -> int:
        """Logits that no score depends on: a ≥ t, t = 0, and the only parent of t = 1."""
        length = len(self.logits)
        # Below the diagonal every pair counts, except the one of t = 1: a softmax over one parent.
        used = length * (length - 1) // 2 - 1
        return length**2 - used

    def forward(self, count: int) -> Float[Tensor, "{count} {count}"]:
        """Return log P(a | t) for a = 0..count-1 and t = 1..count; each column sums to one."""
        # Column t: the first token is no child.
        logits = self.logits[:count, 1 : count + 1]
        later = ~earlier_mask(count, logits.device)
        # A parent stands before its child.
        logits = logits.masked_fill(later, -torch.inf)
        return logits.log_softmax(0)


class ParentModel(LatentModel):
    """A mixture over parents; K = number of parents, times the arc types of typed models.

        P(s_t | s_<t) = Σ_{a<t} P(a | t) P(s_t | s_a)
        P(a | t)      = softmax_{a<t}( Λ[a, t] )           Alignment

    All pairs are scored at once, (B, parent, child). The log prior is minus infinity unless the
    parent precedes the child.
    """

    latent = "parent"
    alignment: Alignment

    def log_prior(self, count: int) -> Float[Tensor, "K {count}"]:
        """Return log P(a | t) for t = 1..count; minus infinity unless a < t."""
        self.require_length(count + 1)
        return self.alignment(count)

    @abstractmethod
    def pair_scores(self, parents: Prefix, targets: Prefix) -> Float[Tensor, "B K t"]:
        """Return log P(target | parent) for every pair."""

    @abstractmethod
    def child_scores(self, parents: Prefix) -> Float[Tensor, "B K V"]:
        """Return log P(v | parent) for every v."""

    def joint(self, tokens: Tokens) -> Tensor:
        parents = tokens[:, :-1]
        targets = tokens[:, 1:]
        pairs = self.pair_scores(parents, targets)
        count = pairs.shape[-1]
        return self.log_prior(count) + pairs

    def next_joint(self, prefix: Tensor) -> Tensor:
        count = prefix.shape[1]
        # The last column is the next token's.
        prior = self.log_prior(count)[:, -1:]
        return prior + self.child_scores(prefix)

    def prior(self) -> Tensor:
        return self.log_prior(self.task.length - 1)


class TiedParentModel(ParentModel):
    """P(v | s_a, r) = softmax(Emb y_ar)_v with (y_a1 .. y_aR) = (M_1 .. M_R) e(s_a) + b."""

    def __init__(self, config: Any, task: Task, types: int = 1):
        super().__init__(config, task)
        width = config.width
        self.transition = nn.Linear(width, types * width)

    def pair_scores(self, parents: Tensor, targets: Tensor) -> Float[Tensor, "B AR t"]:
        table = self.table
        x, at = embed_unique(table, parents)
        y = self.transition(x)
        # By distinct token (N) and type (R); `at` copies rows to the positions.
        by_type = y.unflatten(1, (-1, x.shape[1]))
        log_z = log_normalisers(by_type, table)
        types = log_z.shape[1]
        y = at(y).unflatten(2, (types, -1))
        y = y.flatten(1, 2)
        children = table[targets].transpose(1, 2)
        logits = y @ children
        log_z = at(log_z).flatten(1)
        return logits - log_z[..., None]

    def child_scores(self, parents: Tensor) -> Float[Tensor, "B AR V"]:
        x = self.embedding(parents)
        y = self.transition(x)
        y = y.unflatten(2, (-1, self.config.width))
        logits = y.flatten(1, 2) @ self.table.T
        return logits.log_softmax(-1)


Parents = Annotated[int | None, IntRange(1, 8), Field(ge=1)]


@model(
    "latent_parent_uniform",
    aliases=("DLM2",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class LatentParentUniform(TiedParentModel):
    """Bigram mixed uniformly over the last W tokens.

        P(s_t | s_<t) = Σ_a P(a | t) softmax( Emb (M e(s_a) + b) )[s_t]
        P(a | t)      = 1 / min(W, t)        for a = t-W .. t-1, a ≥ 0

    a is the position of the parent, e(s) and b are (E), M is (E, E), Emb is (V, E). W = 1 is the
    log-bilinear bigram. The S0 code has no window (window=None).
    """

    @config
    class Config(EmbeddingConfig):
        """Embedding and window."""

        window: Parents = 5
        """Number W of possible parents; None means all earlier tokens."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        self.context_length = config.window

    def log_prior(self, count: int) -> Tensor:
        table = self.table
        allowed = earlier_mask(count, table.device)
        if self.config.window is not None:
            # Rows are parents: the lower triangle drops those more than W tokens before the child.
            allowed = allowed.tril(self.config.window - 1)
        prior = table.new_zeros(count, count)
        prior = prior.masked_fill(~allowed, -torch.inf)
        return prior.log_softmax(0)


@model(
    "latent_parent_positional",
    aliases=("DLM5",),
    family="latent-markov",
    document="S0",
    source="Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0",
)
class LatentParentPositional(TiedParentModel):
    """Bigram mixed over all earlier tokens with a learned alignment.

        P(s_t | s_<t) = Σ_{a<t} P(a | t) softmax( Emb (M e(s_a) + b) )[s_t]
        P(a | t)      = softmax_{a<t}( Λ[a, t] )

    a is the position of the parent, Λ is (T, T), e(s) and b are (E), M is (E, E), Emb is (V, E).
    """

    def __init__(self, config: EmbeddingConfig, task: Task):
        super().__init__(config, task)
        self.alignment = Alignment(task.length)


Arcs = StrEnum("Arcs", "SHARED POSITIONAL")
Types = Annotated[int, IntRange(1, 8), Field(ge=1)]
"""What the prior over arc types depends on."""


@model(
    "latent_parent_typed",
    aliases=("DLM6",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class LatentParentTyped(TiedParentModel):
    """Mixture of R bigrams over all earlier tokens with a learned alignment.

        P(s_t | s_<t) = Σ_{a<t} P(a | t) Σ_r P(r) softmax( Emb (M_r e(s_a) + b_r) )[s_t]
        P(a | t)      = softmax_{a<t}( Λ[a, t] )
        P(r)          = softmax_r( ρ_r )              arcs = shared
        P(r | a, t)   = softmax_r( ρ[r, a, t] )       arcs = positional

    a is the position of the parent, r the arc type. Λ is (T, T), ρ is (R) or (R, T, T), e(s) and
    b_r are (E), M_r is (E, E), Emb is (V, E). The latent is the pair (a, r), numbered a·R + r. R =
    1 is `latent_parent_positional`. S0 does not define the prior over types.
    """

    latent = "parent and arc type"

    @config
    class Config(EmbeddingConfig):
        """Embedding and arc types."""

        types: Types = 2
        """Number R of types. Each computes a softmax over the vocabulary per distinct token."""
        arcs: Arcs = Arcs.SHARED

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task, config.types)
        length = task.length
        positions = (length, length)
        if config.arcs is Arcs.SHARED:
            positions = (1, 1)
        self.alignment = Alignment(length)
        shape = (config.types,) + positions
        self.set_drawn(config.types, types=shape)

    @property
    def unused(self) -> int:
        """Positional type logits that no score depends on: a ≥ t, and t = 0."""
        length = self.types.shape[-1]
        # One type distribution for all pairs.
        if length == 1:
            return 0
        used = length * (length - 1) // 2
        unused = length**2 - used
        return len(self.types) * unused

    def log_prior(self, count: int) -> Tensor:
        parents = super().log_prior(count)
        types = self.types.log_softmax(0)
        if self.config.arcs is Arcs.POSITIONAL:
            types = types[:, :count, 1 : count + 1]
        # The pair (a, r) is numbered a · R + r.
        pairs = parents[:, None] + types.transpose(0, 1)
        return pairs.flatten(0, 1)


@model(
    "aligned_aggregate_markov",
    aliases=("DLM13",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class AlignedAggregateMarkov(ParentModel):
    """Aggregate Markov model mixed over all earlier tokens with a learned alignment.

        P(s_t | s_<t) = Σ_{a<t} P(a | t) Σ_z P(s_t | z) P(z | s_a)
        P(a | t)      = softmax_{a<t}( Λ[a, t] )
        P(z | s)      = softmax_z( A e(s) + a )
        P(v | z)      = softmax_v( Emb N(k_z) )

    Λ is (T, T), e(s) and k_z are (E), A is (K, E), Emb is (V, E). With all prior mass on a = t-1 it
    is the aggregate Markov model.
    """

    @config
    class Config(ComponentConfig):
        """Embedding, number of classes and normaliser."""

        norm: Norm = Norm.NONE
        """Normaliser N of the component vectors."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        self.alignment = Alignment(task.length)
        width = config.width
        count = config.components
        self.gate = nn.Linear(width, count)
        self.words = Components(count, width, config.norm, scaled=False)

    def pair_scores(self, parents: Tensor, targets: Tensor) -> Tensor:
        scores = self.words.token_log_probs(targets, self.table)
        classes = self._class_probs(parents)
        by_class = scores.transpose(1, 2)
        return log_mixture(classes, by_class)

    def child_scores(self, parents: Tensor) -> Tensor:
        words = self.words.log_prob_table(self.table)
        classes = self._class_probs(parents)
        return log_mixture(classes, words)

    def _class_probs(self, parents: Tensor) -> Float[Tensor, "B A K"]:
        x = self.embedding(parents)
        logits = self.gate(x)
        return logits.softmax(-1)


@model(
    "two_parent_aggregate_markov",
    aliases=("DLM14",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class TwoParentAggregateMarkov(LatentModel):
    """Aggregate Markov model whose K soft classes are chosen by two earlier tokens.

        P(s_t | s_<t) = Σ_{i,j<t} P(i, j | t) Σ_z P(s_t | z) P(z | i, j)
        P(z | i, j)   = softmax_z( A e(s_i) + a + A' e(s_j) + a' )
        P(i, j | t)   = softmax_{i,j<t}( Λ[i, j, t] )
        P(v | z)      = softmax_v( Emb k_z )

    i and j are the positions of the parents, Λ is (T, T, T), e(s) and k_z are (E), A and A' are (K,
    E), Emb is (V, E). The latent that `posterior` reports is the second parent j.

    The sum over i does not depend on the target and is done first, G[j, t, z] = Σ_i P(i, j | t) P(z
    | i, j), so that no array of size B·T³·K or B·T³ is stored. The time still grows with B·T³·K.
    """

    latent = "second parent"

    @config
    class Config(ComponentConfig):
        """Embedding and number of classes."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        count = config.components
        self.first = nn.Linear(width, count)
        self.second = nn.Linear(width, count)
        self.words = Components(count, width, Norm.NONE, scaled=False)
        length = task.length
        self.set_drawn(length, pairs=(length, length, length))

    @property
    def unused(self) -> int:
        """Logits that no score depends on: a parent not before t, t = 0, the pair of t = 1."""
        count = len(self.pairs)
        # Child t + 1 has t² pairs; the one pair of t = 1 has probability 1.
        squares = (count - 1) * count * (2 * count - 1) // 6
        used = squares - 1
        return count**3 - used

    def joint(self, tokens: Tensor) -> Tensor:
        parents = tokens[:, :-1]
        targets = tokens[:, 1:]
        count = targets.shape[1]
        prior = self._log_prior(count)
        classes = self._classes(parents, prior)
        scores = self.words.token_log_probs(targets, self.table)
        # Scaled by the most probable class, the sum of a rare token does not underflow to 0.
        top = scores.detach().amax(-1, keepdim=True)
        scaled = (scores - top).exp()
        terms = classes * scaled[:, None]
        summed = terms.sum(-1)  # B j t
        joint = log_floored(summed) + top.mT
        later = ~earlier_mask(count, summed.device)
        return joint.masked_fill(later, -torch.inf)

    def next_joint(self, prefix: Tensor) -> Tensor:
        prior = self._log_prior(prefix.shape[1])
        last = prior[..., -1:]
        classes = self._classes(prefix, last)
        words = self.words.log_prob_table(self.table)
        return log_mixture(classes.squeeze(2), words)

    def prior(self) -> Tensor:
        pairs = self._log_prior(self.task.length - 1)
        return pairs.logsumexp(0)

    def _log_prior(self, count: int) -> Float[Tensor, "i j t"]:
        """Return log P(i, j | t), which is −∞ unless both parents are before t."""
        self.require_length(count + 1)
        before = earlier_mask(count, self.pairs.device)
        logits = self.pairs[:count, :count, 1 : count + 1]
        both_before = before[:, None] & before
        logits = logits.masked_fill(~both_before, -torch.inf)
        # One softmax over all pairs of parents.
        pairs = logits.flatten(0, 1).log_softmax(0)
        return pairs.unflatten(0, (count, count))

    def _classes(
        self, parents: Tensor, log_prior: Float[Tensor, "i j t"]
    ) -> Float[Tensor, "B j t K"]:
        """Return P(j, z | t), the sum of P(i, j, z | t) over the first parent i."""
        x = self.embedding(parents)
        first = self.first(x)[:, :, None]
        second = self.second(x)[:, None]
        logits = first + second
        classes = logits.softmax(-1)  # B i j K
        prior = log_prior.exp()
        return torch.einsum("ijt,bijk->bjtk", prior, classes)
