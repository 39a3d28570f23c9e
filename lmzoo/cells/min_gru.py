r"""The minimal GRU, whose gate and candidate do not read the state, and its six cuts.

    z_t = σ( x_t W_xz + b_z )                              state_to_gate=False: gate
        | σ( x_t W_xz + h_{t-1} W_hz + b_z )               state_to_gate=True
    c_t = g( x_t W_xh + b_h )                              candidate
    h_t = (1 − z_t) ⊙ h_{t-1} + z_t ⊙ c_t                  blend
    g(u) = u + ½ if u >= 0, else σ(u)                      candidate=positive, as published
         | u                                               candidate=linear
         | tanh(u)                                         candidate=tanh, as in the GRU

A cut replaces a term by zero, or a gate by one:

    0  input_to_gate           x_t W_xz            3  candidate_bias       b_h
    1  gate_bias               b_z                 4  carry                (1 − z_t) ⊙ h_{t-1}
    2  input_to_candidate      x_t W_xh            5  write_gate           z_t ⊙ c_t → c_t

With `expansion` the state has ⌊expansion · H⌋ columns, and the output is W_y h_t, as published.

Without input_to_gate (0) the state is an exponential moving average of the candidates. The authors
remove a path of the GRU, h_{t-1} W_hz of the gate; `state_to_gate` puts it back. With it and
candidate=tanh the cell is the minimal gated unit (`mgu.py`) without state_to_candidate.

Differences from lucidrains' code (`minGRU.py`, 38b26e1):

    there                              here                        why
    no biases                          biases                      the paper's maps have them;
                                                                   cuts 1 and 3 remove them
    expansion 1.5 in the model         expansion 1                 the cell `min_block` has it
    computed with logarithms           products and sums           equal; no overflow below 1

Feng et al. 2024 (arXiv:2410.01201).
"""

import dataclasses
from enum import StrEnum
from typing import Annotated, Any

import torch
from pydantic import Field, StrictBool
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.cells.matrix import linear
from lmzoo.functional.affine import affine

Cut = StrEnum("Cut", "INPUT_TO_GATE GATE_BIAS INPUT_TO_CANDIDATE CANDIDATE_BIAS CARRY WRITE_GATE")
ZERO_WEIGHTS = {Cut.INPUT_TO_GATE, Cut.GATE_BIAS, Cut.INPUT_TO_CANDIDATE, Cut.CANDIDATE_BIAS}
"""Cuts that equal a weight of zero."""
Candidate = StrEnum("Candidate", "POSITIVE LINEAR TANH")
"""The function g."""


def positive(u: Tensor) -> Tensor:
    """Return u + ½ where u >= 0, and σ(u) elsewhere."""
    return torch.where(u >= 0, u + 0.5, torch.sigmoid(u))


FUNCTIONS = {
    Candidate.POSITIVE: positive,
    Candidate.LINEAR: torch.nn.Identity(),
    Candidate.TANH: torch.tanh,
}


Expansion = Annotated[float, Choice((1.0, 1.5, 2.0))]


class MinimalCell(DiagonalCell):
    """A cell with ⌊`expansion` · H⌋ columns, and a map W_y back to H if these are not H."""

    w: Weights

    def __init__(self, config: Any, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.columns = int(config.expansion * width)
        self.num_state_vectors = -(-self.columns // width)
        self.spare_start = self.num_state_vectors * width - self.columns

    def set_weights(
        self, shapes: dict[str, tuple[int, ...]], cut: set[str], biases: set[str]
    ) -> None:
        """Draw the weights, and W_y."""
        own = {"out": linear(self.columns)}
        shapes |= {} if self.columns == self.width else {"out": (self.width, self.columns)}
        self.w = Weights(shapes, cut, fan_in=self.width, biases=biases, own=own)

    def map(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return x W + b for all columns; a missing weight or bias counts as zero."""
        if weight is None and bias is None:
            return x.new_zeros(*x.shape[:-1], self.columns)
        return affine(x, weight, bias)

    def initial_state(self, start: Tensor) -> State:
        return (self.shift_start(start)[:, : self.columns],)

    @property
    def state_size(self) -> int:
        return self.columns

    def read(self, s: Tensor, projected: Tensor, before: Tensor | None) -> Tensor:
        out = getattr(self.w, "out", None)
        return s if out is None else torch.nn.functional.linear(s, out)


@CELLS("min_gru")
class MinGRU(MinimalCell):
    """A recurrence with one gate that reads the token only; each of six terms can be cut."""

    @config
    class Config:
        """The cuts, by name or number, and two choices of the GRU that can be put back."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()
        expansion: Expansion = Field(1.0, ge=1, exclude_if=lambda factor: factor == 1)
        """Columns of the state per column of the input."""
        candidate: Candidate = Candidate.POSITIVE
        state_to_gate: StrictBool = False
        """Put back the GRU's path h_{t-1} W_hz of the gate. The scan is then serial."""

        def uncut(self) -> Any:
            """Return the config without the cuts that zero weights can express."""
            return dataclasses.replace(self, cuts=self.cuts - ZERO_WEIGHTS)

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts, h = config.cuts, self.columns
        shapes = {"xz": (width, h), "bz": (h,), "xh": (width, h), "bh": (h,), "hz": (h, h)}
        cut = {name for name, path in zip(shapes, Cut, strict=False) if path in self.cuts}
        cut |= set() if config.state_to_gate else {"hz"}
        self.set_weights(shapes, cut, {"bz", "bh"})

    @property
    def input_blind(self) -> bool:
        return self.cuts >= {Cut.INPUT_TO_GATE, Cut.INPUT_TO_CANDIDATE}

    @property
    def reads_state(self) -> bool:
        return self.config.state_to_gate

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        return torch.cat([self.map(x, w.xz, w.bz), self.map(x, w.xh, w.bh)], dim=-1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        return {"z": self._gate(projected, state[0])}

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        z = self._gate(projected, s)
        c = FUNCTIONS[self.config.candidate](projected[..., self.columns :])
        a = torch.zeros_like(z) if Cut.CARRY in self.cuts else 1 - z
        return a, c if Cut.WRITE_GATE in self.cuts else z * c

    def _gate(self, projected: Tensor, h: Tensor | None) -> Tensor:
        logit = projected[..., : self.columns]
        return torch.sigmoid(logit if self.w.hz is None or h is None else logit + h @ self.w.hz)
