r"""Chained slots: each pointer starts from where the one before it points.

    p_1(j | t) = softmax_{j<t}( Λ_1[t, j] + B ê_j )
    p_n(j | t) = Σ_{i<t} p_{n-1}(i | t) softmax_{j<t}( affinity_n(i, j) + Λ_n[i, j] )

    key       affinity_n(i, j) = N(M_n ê_i) · ê_j
    emission  affinity_n(i, j) = log Σ_z softmax_z( C N(M_n ê_i) ) P(s_j | z)

    concat    P(z_t | s_<t) = softmax( A [b_{1,t}; ..; b_{N,t}] )
    lstm      P(z_t | s_<t) = softmax( A N(h_N) ),  h_n = LSTM(b_{n,t}, h_{n-1}),  h_0 = c_0 = 1

`emission` asks how well i's component would say s_j. The published DLM32 normalises the
affinity over j before the softmax does it again, which changes nothing: it is DLM31.

S0 DLM31-35.
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
from lmzoo.functional.draw import uniform
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import normalise_vectors
from lmzoo.models.slots.base import SlotConfig, SlotModel
from lmzoo.models.slots.pointers import chained_pointers, lag_pointer
from lmzoo.search_space import IntRange


class Affinity(StrEnum):
    """What draws a pointer at i towards j."""

    KEY = "key"
    EMISSION = "emission"


class Reader(StrEnum):
    """How the slots become one vector."""

    CONCAT = "concat"
    LSTM = "lstm"


@model("chain_slot_ngram", aliases=("DLM31", "DLM32"), family="slot", document="S0", source="S0")
class ChainSlotNgram(SlotModel):
    """A Markov chain of soft pointers to earlier tokens, mixture emission."""

    @config
    class Config(SlotConfig):
        """The sizes, what the chain follows and what reads it."""

        slots: Annotated[int, IntRange(2, 8)] = Field(4, ge=2)
        """One slot is no chain: that is `slot_ngram`."""
        affinity: Affinity = Affinity.KEY
        reader: Reader = Reader.CONCAT

    def __init__(self, config: Config, task: Task) -> None:
        width, links, places = config.width, config.slots - 1, task.length - 1
        reads = config.reader is Reader.LSTM
        super().__init__(config, task, gate_width=width if reads else config.slots * width)
        self.lags = nn.Parameter(torch.empty(config.slots, places, places))
        self.appeal = nn.Linear(width, 1, bias=False)
        self.moves = nn.Linear(width, links * width)
        """M_2..M_N, one below the other."""
        emits = config.affinity is Affinity.EMISSION
        self.affinity = nn.Linear(width, config.components) if emits else None
        self.reader = LSTM(LSTM.Config(), width, config.slots) if reads else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Λ from U(T)."""
        with torch.no_grad():
            self.lags.copy_(uniform(tuple(self.lags.shape), self.task.length))

    def pointers(self, tokens: Tensor, seen: Tensor) -> Tensor:
        size = tokens.shape[1]
        lags = self.lags[:, :size, :size]
        first = lag_pointer(lags[0], self.appeal(seen)[..., 0])
        moved = self.moves(seen).unflatten(-1, (-1, self.config.width))
        moved = normalise_vectors(moved, self.config.norm).movedim(2, 0)
        return chained_pointers(first, self._affinities(moved, tokens, seen) + lags[1:, None])

    def _affinities(
        self, moved: Float[Tensor, "N B S E"], tokens: Tensor, seen: Float[Tensor, "B S E"]
    ) -> Float[Tensor, "N B S S"]:
        if self.affinity is None:
            return moved @ seen.mT
        words = self.components.word_scores(tokens, self.embedding.weight)
        return log_mixture(torch.softmax(self.affinity(moved), dim=-1), words.mT)

    def read(self, slots: Tensor) -> Tensor:
        if self.reader is None:
            return super().read(slots)
        b = slots.transpose(1, 2)
        rows = b.flatten(0, 1)
        h = self.reader.scan(rows, rows.new_ones(len(rows), 2 * self.config.width))[:, -1]
        return normalise_vectors(h.unflatten(0, b.shape[:2]), self.config.norm)

    def prior(self) -> Float[Tensor, "S S"]:
        """Log softmax_{j<t} Λ_1[t, j]: where the first slot points before it sees words."""
        return lag_pointer(self.lags[0], self.lags.new_zeros(len(self.lags[0]))).log().mT
