"""Slot models: n-gram models whose context positions are soft pointers to earlier tokens.

Source j = 0..S-1 is token s_j. Row t-1 of a pointer belongs to target s_t and is nonzero for
j < t only: the lower triangle with its diagonal.

    lag      p(j | t) = softmax_{j<t}( Λ[t, j] + score_j )
    chained  p_n(j | t) = Σ_{i<t} p_{n-1}(i | t) · softmax_{j<t}( score_n[i, j] )
"""

from abc import abstractmethod
from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn.functional import pad

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.latent import EmbeddedModel
from lmzoo.blocks.layers import ComponentConfig
from lmzoo.cells.lstm import LSTM
from lmzoo.contract import Task, model
from lmzoo.emissions.mixture import Components
from lmzoo.functional.logspace import exact_log_mixture, log_mixture
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.types import SourceVectors

BLOCK = 8
"""Number of targets per block of `chained_pointers`. More take more memory, fewer more calls."""


def lag_pointer(
    lags: Float[Tensor, "*N S S"], scores: Float[Tensor, "*B S"]
) -> Float[Tensor, "*B S S"]:
    """Return p(j | t) = softmax_{j<t}( lags[t, j] + scores[j] ); the last axis is the source."""
    sources = scores.shape[-1]
    visible = causal_mask(sources, scores.device)  # [target, source]
    logits = lags + scores[..., None, :]
    logits = logits.masked_fill(~visible, -torch.inf)
    return logits.softmax(-1)


def unused_lags(sources: int) -> int:
    """Return how many of S x S lag logits have no effect: j ≥ t, and the only source of t = 1."""
    used = sources * (sources + 1) // 2 - 1
    return sources**2 - used


def chained_pointers(
    first: Float[Tensor, "B S S"], scores: Float[Tensor, "N B S S"]
) -> Float[Tensor, "B M S S"]:
    """Return the first pointer and the N pointers that follow it, N + 1 = M in all.

    The softmax of a chained pointer has one normaliser per (i, t), so a direct computation takes an
    S x S matrix per target: O(T³) memory per sequence. Targets are processed in blocks instead. All
    targets of a block see the tokens before the block, so that

        softmax_{j<t} = share · softmax_{before block} + (1 − share) · softmax_{in block, j<t}
        share         = σ(LSE_before − LSE_in)

    and only the tokens within the block take a matrix per target. `scores` is indexed [from, to].
    """
    sources = first.shape[-1]
    blocks = []
    for low in range(0, sources, BLOCK):
        high = min(low + BLOCK, sources)
        pointer = first[:, low:high, :high]
        pointers = [pointer]
        for score in scores:
            seen = score[:, :high, :high]
            pointer = _chain_step(pointer, seen, low)
            pointers.append(pointer)
        # The targets of this block see no source from `high` on.
        block = torch.stack(pointers, 1)
        missing = sources - high
        blocks.append(pad(block, (0, missing)))
    return torch.cat(blocks, 2)


def _chain_step(
    pointer: Float[Tensor, "B b S"],
    score: Float[Tensor, "B S S"],
    low: int,
) -> Float[Tensor, "B b S"]:
    """Move the pointers of a block's targets once; the last target sees all S sources."""
    in_block = score[:, :, low:]
    sources = score.shape[-1]
    visible = causal_mask(sources, score.device)
    visible = visible[low:, None, low:]
    # Subtracting the maximum over what target t sees keeps the sum at least 1. Masking by
    # multiplication avoids exp(−∞), which is about thirty times slower on a CPU.
    highest = in_block.detach().cummax(-1).values
    peak = highest.mT[..., None]
    shifted = (in_block[:, None] - peak) * visible
    weights = shifted.exp() * visible
    total = weights.sum(-1)
    if low == 0:
        scaled = pointer / total
        moved = scaled[:, :, None] @ weights
        return moved[:, :, 0]
    # `share` is the part of a softmax over all sources that falls before the block.
    score_before = score[:, :, :low]
    before = score_before.logsumexp(-1)
    logit = before[:, None] - peak[..., 0] - total.log()
    share = logit.sigmoid()
    to_before = (pointer * share) @ score_before.softmax(-1)
    scaled = pointer * (1 - share) / total
    moved = scaled[:, :, None] @ weights
    return torch.cat([to_before, moved[:, :, 0]], -1)


Slots = Annotated[int, IntRange(2, 8), Field(ge=1)]


@config
class SlotConfig(ComponentConfig):
    """Embedding, components, slots and normaliser."""

    slots: Slots = 4
    """Number M of slots."""
    norm: Norm = Norm.RMS
    """Normaliser N of each token vector and each component vector."""

    @field_validator("norm")
    @classmethod
    def _refuse_norm_over_time(cls, norm: Norm) -> Norm:
        if norm.over_time:
            raise UserError(f"slots normalise single vectors: use none, rms, l2 or std, got {norm}")
        return norm


class SlotModel(EmbeddedModel):
    """Base class of the slot models: M soft pointers, their values, and a mixture emission.

        ê_j     = N(e(s_j))
        b_{n,t} = Σ_j p_n(j | t) ê_j                  value of slot n = 1..M
        P(z_t | s_<t) = softmax( A read(b_{1,t}..b_{M,t}) )
        P(s_t | s_<t) = Σ_z P(z_t | s_<t) P(s_t | z)

    ê_j and b_{n,t} are (E), p_n is a distribution over positions j < t. This is a mean-field model:
    it averages the values that a pointer may select instead of summing over pointer positions. It
    is exactly normalised over s_t. A subclass defines `pointers`, the size of the vectors that
    `read` returns, and the number of token scores B ê_j.
    """

    Config = SlotConfig
    latent = "source of the first slot"

    def __init__(
        self,
        config: Any,
        task: Task,
        gate_width: int,
        appeals: int,
    ):
        super().__init__(config, task)
        width = config.width
        count = config.components
        self.components = Components(count, width, config.norm, scaled=True)
        self.gate = nn.Linear(gate_width, count)
        # The last token is no source and the first no target: T − 1 of each.
        sources = task.length - 1
        lags = (config.slots, sources, sources)
        self.set_drawn(task.length, lags=lags)
        # A bias would cancel in the softmax over sources.
        self.appeal = nn.Linear(width, appeals, bias=False)

    @abstractmethod
    def pointers(self, tokens: Tensor, vectors: SourceVectors) -> Float[Tensor, "B N S S"]:
        """Return p_n(j | t) of every slot from the source tokens and their vectors ê.

        The last axis is the source position j, the one before it the target t.
        """

    def read(self, slots: Float[Tensor, "B N S E"]) -> Float[Tensor, "B S G"]:
        """Return the slot values as one vector per target: their concatenation."""
        by_target = slots.transpose(1, 2)
        return by_target.flatten(2)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        targets = tokens[:, 1:]
        scores = self.components.token_log_probs(targets, self.table)
        components = self.log_components(tokens[:, :-1])
        joint = components + scores
        return joint.logsumexp(-1)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        words = self.components.log_prob_table(self.table)
        components = self.log_components(prefix)[:, -1]
        mixed = exact_log_mixture(components, words)
        # Rounding may leave a probability just above 1.
        return mixed.clamp_max(0)

    def log_components(self, sources: Tensor) -> Float[Tensor, "B S K"]:
        """Return log P(z | s_0..s_j) of the token after each source position j."""
        vectors = self.source_vectors(sources)[:, None]
        slots = self.source_pointers(sources) @ vectors
        read = self.read(slots)
        logits = self.gate(read)
        return logits.log_softmax(-1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "B S S"]:
        """Return p_1(source | target), which does not depend on s_t (mean field)."""
        pointers = self.source_pointers(tokens[:, :-1])
        first = pointers[:, 0]
        return first.mT

    def source_pointers(self, sources: Tensor) -> Float[Tensor, "B N S S"]:
        """Return `pointers` of these tokens, no more than the task has."""
        self.require_length(sources.shape[1] + 1)
        vectors = self.source_vectors(sources)
        return self.pointers(sources, vectors)

    def source_vectors(self, sources: Tensor) -> SourceVectors:
        """Return ê of each token."""
        x = self.embedding(sources)
        return normalise_vectors(x, self.config.norm)


@model(
    "slot_ngram",
    aliases=("DLM30",),
    family="slot",
    document="S0",
    source="S0",
)
class SlotNgram(SlotModel):
    """N-gram model with M independent soft pointers to earlier tokens, mixture emission.

        p_n(j | t)    = softmax_{j<t}( Λ_n[t, j] + (B ê_j)_n )
        b_{n,t}       = Σ_j p_n(j | t) ê_j                  ê_j = N(e(s_j))
        P(z_t | s_<t) = softmax( A [b_{1,t}; ..; b_{M,t}] )
        P(s_t | s_<t) = Σ_z P(z_t | s_<t) softmax_v( exp(g_z) · Emb N(k_z) )[s_t]

    Λ_n (T-1, T-1) scores positions, B (M, E) scores tokens; B has no bias because the softmax would
    cancel it. ê_j, b_{n,t} and k_z are (E), A is (K, M·E), g is (K), Emb is (V, E).
    """

    def __init__(self, config: SlotConfig, task: Task):
        gate_width = config.slots * config.width
        super().__init__(config, task, gate_width, appeals=config.slots)

    @property
    def unused(self) -> int:
        """Logits that no score depends on; see `unused_lags`."""
        slots, sources, _ = self.lags.shape
        return slots * unused_lags(sources)

    def pointers(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        size = tokens.shape[1]
        lags = self.lags[:, :size, :size]
        scores = self.appeal(vectors).mT
        return lag_pointer(lags, scores)

    def prior(self) -> Float[Tensor, "N S S"]:
        """Return log softmax_{j<t} Λ_n[t, j], the pointers without token scores."""
        no_scores = self.lags.new_zeros(self.lags.shape[:2])
        pointers = lag_pointer(self.lags, no_scores)
        return pointers.log().mT


ChainSlots = Annotated[int, IntRange(2, 8), Field(ge=2)]
Affinity = StrEnum("Affinity", "KEY EMISSION")
"""How the score of a move from source i to source j is computed."""
Reader = StrEnum("Reader", "CONCAT LSTM")
"""How the slot values are combined into one vector."""


@model(
    "chain_slot_ngram",
    aliases=("DLM31", "DLM32"),
    family="slot",
    document="S0",
    source="S0",
)
class ChainSlotNgram(SlotModel):
    """N-gram model with a Markov chain of soft pointers to earlier tokens.

        p_1(j | t) = softmax_{j<t}( Λ_1[t, j] + B ê_j )
        p_n(j | t) = Σ_{i<t} p_{n-1}(i | t) softmax_{j<t}( affinity_n(i, j) + Λ_n[i, j] )

        key       affinity_n(i, j) = N(M_n ê_i) · ê_j
        emission  affinity_n(i, j) = log Σ_z softmax_z( C N(M_n ê_i) ) P(s_j | z)

        concat    P(z_t | s_<t) = softmax( A [b_{1,t}; ..; b_{M,t}] )
        lstm      P(z_t | s_<t) = softmax( A N(h_M) ),  h_n = LSTM(b_{n,t}, h_{n-1}),  h_0 = c_0 = 1
        P(s_t | s_<t) = Σ_z P(z_t | s_<t) softmax_v( exp(g_z) · Emb N(k_z) )[s_t]

    ê_j = N(e(s_j)), b_{n,t} = Σ_j p_n(j | t) ê_j and k_z are (E). Λ_n (T-1, T-1) is indexed
    [target, source] for n = 1 and [from, to] for n = 2..M. B is (1, E), M_n is (E, E), C is (K, E),
    g is (K), Emb is (V, E). With affinity=emission, a pointer at i moves to tokens s_j that are
    probable under the components selected by i. DLM32 normalises the affinity over j before the
    softmax, which changes nothing, so it is an alias of DLM31.
    """

    @config
    class Config(SlotConfig):
        """Embedding, components, slots, affinity and reader."""

        slots: ChainSlots = 4
        """Number M of slots. For one slot use `slot_ngram`."""
        affinity: Affinity = Affinity.KEY
        reader: Reader = Reader.CONCAT

    def __init__(self, config: Config, task: Task):
        width = config.width
        has_lstm = config.reader is Reader.LSTM
        # A map reads all slots at once, an LSTM one after another.
        gate_width = config.slots * width
        if has_lstm:
            gate_width = width
        super().__init__(config, task, gate_width, appeals=1)
        moves = config.slots - 1
        self.moves = nn.Linear(width, moves * width)
        """M_2..M_M, stacked along the output axis."""
        if config.affinity is Affinity.EMISSION:
            self.affinity = nn.Linear(width, config.components)
        else:
            self.affinity = None
        if has_lstm:
            self.reader = LSTM(LSTM.Config(), width, config.slots)
        else:
            self.reader = None

    @property
    def unused(self) -> int:
        """Logits of the first slot that no score depends on; see `unused_lags`."""
        return unused_lags(self.lags.shape[1])

    def pointers(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        size = tokens.shape[1]
        lags = self.lags[:, :size, :size]
        appeal = self.appeal(vectors).squeeze(-1)
        first = lag_pointer(lags[0], appeal)
        moves = self.moves(vectors)
        moved = moves.unflatten(-1, (-1, self.config.width))
        moved = normalise_vectors(moved, self.config.norm)
        # The move first: (N, B, S, E), as the chain walks from move to move.
        moved = moved.movedim(2, 0)
        scores = self._affinities(moved, tokens, vectors)
        return chained_pointers(first, scores + lags[1:, None])

    def _affinities(
        self,
        moved: Float[Tensor, "N B S E"],
        tokens: Tensor,
        vectors: SourceVectors,
    ) -> Float[Tensor, "N B S S"]:
        """Return affinity_n(i, j) of every move n, from N(M_n ê_i)."""
        if self.affinity is None:
            return moved @ vectors.mT
        scores = self.components.token_log_probs(tokens, self.table)
        selected = self.affinity(moved).softmax(-1)
        return log_mixture(selected, scores.mT)

    def read(self, slots: Tensor) -> Tensor:
        if self.reader is None:
            return super().read(slots)
        # The LSTM reads the slots of one target as a sequence.
        by_target = slots.transpose(1, 2)
        x = by_target.flatten(0, 1)
        start = x.new_ones(len(x), 2 * self.config.width)
        outputs = self.reader.scan(x, start)
        last = outputs[:, -1]
        h = last.unflatten(0, by_target.shape[:2])
        return normalise_vectors(h, self.config.norm)

    def prior(self) -> Float[Tensor, "S S"]:
        """Return log softmax_{j<t} Λ_1[t, j], the first pointer without token scores."""
        lags = self.lags[0]
        no_scores = lags.new_zeros(len(lags))
        pointer = lag_pointer(lags, no_scores)
        return pointer.log().mT
