r"""Chained slot n-gram: each soft pointer starts where the previous one points.

    p_1(j | t) = softmax_{j<t}( Λ_1[t, j] + B ê_j )
    p_n(j | t) = Σ_{i<t} p_{n-1}(i | t) softmax_{j<t}( affinity_n(i, j) + Λ_n[i, j] )

    key       affinity_n(i, j) = N(M_n ê_i) · ê_j
    emission  affinity_n(i, j) = log Σ_z softmax_z( C N(M_n ê_i) ) P(s_j | z)

    concat    P(z_t | s_<t) = softmax( A [b_{1,t}; ..; b_{M,t}] )
    lstm      P(z_t | s_<t) = softmax( A N(h_M) ),  h_n = LSTM(b_{n,t}, h_{n-1}),  h_0 = c_0 = 1
    P(s_t | s_<t) = Σ_z P(z_t | s_<t) softmax_v( exp(g_z) · Emb N(k_z) )[s_t]

ê_j = N(e(s_j)), b_{n,t} = Σ_j p_n(j | t) ê_j and k_z are (E). Λ_n (T-1, T-1) is indexed [target,
source] for n = 1 and [from, to] for n = 2..M. B is (1, E), M_n is (E, E), C is (K, E), g is (K),
Emb is (V, E). With affinity=emission, a pointer at i moves to tokens s_j that are probable under
the components selected by i. DLM32 normalises the affinity over j before the softmax, which
changes nothing, so it is an alias of DLM31.

Source: S0 (DLM31, DLM32; DLM33: affinity=emission; DLM34: and reader=lstm; DLM35: reader=lstm).
"""

from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.cells.lstm import LSTM
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.initialisers import draw_uniform
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import normalise_vectors
from lmzoo.models.slots.base import SlotConfig, SlotModel
from lmzoo.models.slots.pointers import chained_pointers, lag_pointer, unused_lags
from lmzoo.registry import preset
from lmzoo.search_space import IntRange


class Affinity(StrEnum):
    """How the score of a move from source i to source j is computed."""

    KEY = "key"
    EMISSION = "emission"


class Reader(StrEnum):
    """How the slot values are combined into one vector."""

    CONCAT = "concat"
    LSTM = "lstm"


@model("chain_slot_ngram", aliases=("DLM31", "DLM32"), family="slot", document="S0", source="S0")
class ChainSlotNgram(SlotModel):
    """N-gram model with a Markov chain of soft pointers to earlier tokens."""

    @config
    class Config(SlotConfig):
        """Embedding, components, slots, affinity and reader."""

        slots: Annotated[int, IntRange(2, 8)] = Field(4, ge=2)
        """Number M of slots. For one slot use `slot_ngram`."""
        affinity: Affinity = Affinity.KEY
        reader: Reader = Reader.CONCAT

    def __init__(self, config: Config, task: Task) -> None:
        width, moves, sources = config.width, config.slots - 1, task.length - 1
        has_lstm = config.reader is Reader.LSTM
        super().__init__(config, task, gate_width=width if has_lstm else config.slots * width)
        self.lags = nn.Parameter(torch.empty(config.slots, sources, sources))
        self.appeal = nn.Linear(width, 1, bias=False)
        self.moves = nn.Linear(width, moves * width)
        """M_2..M_M, stacked along the output axis."""
        emits = config.affinity is Affinity.EMISSION
        self.affinity = nn.Linear(width, config.components) if emits else None
        self.reader = LSTM(LSTM.Config(), width, config.slots) if has_lstm else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw Λ from U(T)."""
        draw_uniform(self.lags, self.task.length)

    @property
    def unused(self) -> int:
        """Logits of the first slot that no score depends on; see `unused_lags`."""
        return unused_lags(self.lags.shape[1])

    def pointers(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        size = tokens.shape[1]
        lags = self.lags[:, :size, :size]
        first = lag_pointer(lags[0], self.appeal(vectors)[..., 0])
        moved = self.moves(vectors).unflatten(-1, (-1, self.config.width))
        moved = normalise_vectors(moved, self.config.norm).movedim(2, 0)
        return chained_pointers(first, self._affinities(moved, tokens, vectors) + lags[1:, None])

    def _affinities(
        self, moved: Float[Tensor, "N B S E"], tokens: Tensor, vectors: Float[Tensor, "B S E"]
    ) -> Float[Tensor, "N B S S"]:
        """Return affinity_n(i, j) of every move n, from N(M_n ê_i)."""
        if self.affinity is None:
            return moved @ vectors.mT
        scores = self.components.token_log_probs(tokens, self.embedding.weight)
        return log_mixture(torch.softmax(self.affinity(moved), dim=-1), scores.mT)

    def read(self, slots: Tensor) -> Tensor:
        if self.reader is None:
            return super().read(slots)
        by_target = slots.transpose(1, 2)
        x = by_target.flatten(0, 1)
        h = self.reader.scan(x, x.new_ones(len(x), 2 * self.config.width))[:, -1]
        return normalise_vectors(h.unflatten(0, by_target.shape[:2]), self.config.norm)

    def prior(self) -> Float[Tensor, "S S"]:
        """Return log softmax_{j<t} Λ_1[t, j], the first pointer without token scores."""
        return lag_pointer(self.lags[0], self.lags.new_zeros(len(self.lags[0]))).log().mT


for _name, _alias, _fields, _summary in (
    (
        "chain_slot_ngram_emission", "DLM33", {"affinity": "emission"},
        "Chained slot n-gram whose pointers follow emission probabilities.",
    ),
    (
        "chain_slot_lstm_emission", "DLM34", {"affinity": "emission", "reader": "lstm"},
        "Chained slot n-gram with emission affinity, slots read by an LSTM.",
    ),
    (
        "chain_slot_lstm", "DLM35", {"reader": "lstm"},
        "Chained slot n-gram whose slots are read by an LSTM.",
    ),
):  # fmt: skip
    preset(
        _name, model="chain_slot_ngram", fields=_fields, aliases=(_alias,), family="slot",
        score="exact", document="S0", source="S0", summary=_summary,
    )  # fmt: skip
