r"""The minimal LSTM, whose gates and candidate do not read the state, and its nine cuts.

    f_t = σ( x_t W_xf + b_f )        i_t = σ( x_t W_xi + b_i )         gates
    c_t = g( x_t W_xh + b_h )                                          candidate
    f'_t = f_t / (f_t + i_t)         i'_t = i_t / (f_t + i_t)          normaliser
    h_t = f'_t ⊙ h_{t-1} + i'_t ⊙ c_t

g and `expansion` are those of the minimal GRU (`min_gru.py`). A cut replaces a term by zero:

    0  input_to_forget         x_t W_xf            4  input_to_candidate   x_t W_xh
    1  forget_bias             b_f                 5  candidate_bias       b_h
    2  input_to_write          x_t W_xi            6  carry                f'_t ⊙ h_{t-1}
    3  write_bias              b_i                 7  normaliser           f'_t → f_t; i'_t → i_t
    8  write_gate              i_t = 1 − f_t

The authors' normaliser makes f' + i' = 1, so that the scale of h does not depend on the length.
Without a write gate of its own (8) the normaliser has no effect, and the cell is the minimal GRU
with z = 1 − f.

Differences from lucidrains' code (`minLSTM.py`, 38b26e1):

    there                              here                        why
    no biases                          biases                      the paper's maps have them;
                                                                   cuts 1, 3 and 5 remove them
    expansion 1.5 in the model         expansion 1                 the cell `min_block` has it

Feng et al. 2024 (arXiv:2410.01201).
"""

import dataclasses
from enum import StrEnum
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, State
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.min_gru import FUNCTIONS, Candidate, Expansion, MinimalCell

Cut = StrEnum(
    "Cut",
    "INPUT_TO_FORGET FORGET_BIAS INPUT_TO_WRITE WRITE_BIAS INPUT_TO_CANDIDATE CANDIDATE_BIAS "
    "CARRY NORMALISER WRITE_GATE",
)
WEIGHTS = list(Cut)[:6]
"""Cuts that equal a weight of zero, in the order of the weights."""


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the one set of cuts that stands for all sets with the same function.

    With write_gate (8), i has no weights and f + i = 1, so cuts 2, 3 and 7 have no effect.
    """
    if Cut.WRITE_GATE in cuts:
        cuts = cuts - {Cut.INPUT_TO_WRITE, Cut.WRITE_BIAS, Cut.NORMALISER}
    return cuts


@CELLS("min_lstm")
class MinLSTM(MinimalCell):
    """A recurrence with two normalised gates that read the token only."""

    @config
    class Config:
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()
        expansion: Expansion = Field(1.0, ge=1, exclude_if=lambda factor: factor == 1)
        """Columns of the state per column of the input."""
        candidate: Candidate = Candidate.POSITIVE
        """The function g."""

        def uncut(self) -> Any:
            """Return the config without the cuts that zero weights can express."""
            return dataclasses.replace(self, cuts=self.cuts - set(WEIGHTS))

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts, h = config.cuts, self.columns
        shapes: dict[str, tuple[int, ...]] = {
            "xf": (width, h), "bf": (h,),
            "xi": (width, h), "bi": (h,),
            "xh": (width, h), "bh": (h,),
        }  # fmt: skip
        cut = {name for name, path in zip(shapes, WEIGHTS, strict=True) if path in self.cuts}
        if Cut.WRITE_GATE in self.cuts:
            cut |= {"xi", "bi"}
        self.set_weights(shapes, cut, {"bf", "bi", "bh"})

    @property
    def input_blind(self) -> bool:
        gates = {Cut.INPUT_TO_FORGET}
        gates |= set() if Cut.WRITE_GATE in self.cuts else {Cut.INPUT_TO_WRITE}
        return self.cuts >= gates | {Cut.INPUT_TO_CANDIDATE}

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        parts = [self.map(x, w.xf, w.bf), self.map(x, w.xh, w.bh)]
        if Cut.WRITE_GATE not in self.cuts:
            parts.append(self.map(x, w.xi, w.bi))
        return torch.cat(parts, dim=-1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return f' and i', or f and i without the normaliser."""
        f, _, *i = projected.split(self.columns, dim=-1)
        if not i:
            return {"f": torch.sigmoid(f), "i": torch.sigmoid(-f)}
        if Cut.NORMALISER in self.cuts:
            return {"f": torch.sigmoid(f), "i": torch.sigmoid(i[0])}
        # log f − log i, so that no gate underflows.
        odds = logsigmoid(f) - logsigmoid(i[0])
        return {"f": torch.sigmoid(odds), "i": torch.sigmoid(-odds)}

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        f, i = self.gates(projected, ()).values()
        u = projected[..., self.columns : 2 * self.columns]
        a = torch.zeros_like(f) if Cut.CARRY in self.cuts else f
        return a, i * FUNCTIONS[self.config.candidate](u)
