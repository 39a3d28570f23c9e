r"""The minimal gated unit, any of whose eight paths may be cut.

    f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )                gate
    c_t = tanh( x_t W_xh + (h_{t-1} ⊙ f_t) W_hh + b_h )     candidate
    h_t = (1 − f_t) ⊙ h_{t-1} + f_t ⊙ c_t                   blend

S0 calls it a GRU; with one gate in both roles it is the MGU. Cutting a path puts zero
in its place. {INPUT_TO_GATE} leaves MGU1, with GATE_BIAS MGU2; {STATE_TO_GATE,
INPUT_TO_GATE} leaves MGU3 (Heck & Salem 2017, arXiv:1701.03452).

Zhou et al. 2016 (arXiv:1603.09420); S0 DLM46; zoo.md 2.2.
"""

from enum import StrEnum
from typing import Any

import torch
from pydantic import field_validator, model_validator
from pydantic_core import ArgsKwargs
from torch import Tensor

from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights
from lmzoo.cells.switch_numbers import by_number
from lmzoo.config import config
from lmzoo.errors import UserError
from lmzoo.kernels.scan.autograd import scan_batch_first
from lmzoo.kernels.scan.mgu import MGUScan


class Cut(StrEnum):
    """A term of the recurrence that can be removed; the seed's number is its position."""

    INPUT_TO_GATE = "input_to_gate"  # f = σ(h W_hf + b_f)
    STATE_TO_GATE = "state_to_gate"  # f = σ(x W_xf + b_f): the gate sees this token only
    GATE_BIAS = "gate_bias"  # f = σ(x W_xf + h W_hf)
    INPUT_TO_CANDIDATE = "input_to_candidate"  # c = tanh((h ⊙ f) W_hh + b_h)
    STATE_TO_CANDIDATE = "state_to_candidate"  # c = tanh(x W_xh + b_h): no reset role for f
    CANDIDATE_BIAS = "candidate_bias"  # c = tanh(x W_xh + (h ⊙ f) W_hh)
    CARRY = "carry"  # h = f ⊙ c: no leaky memory
    WRITE = "write"  # h = (1 − f) ⊙ h: the token enters only as decay


Cuts = frozenset[Cut]
CANDIDATE = frozenset({Cut.INPUT_TO_CANDIDATE, Cut.STATE_TO_CANDIDATE, Cut.CANDIDATE_BIAS})


def canonical(cuts: Cuts) -> Cuts:
    """The same function's one name: a candidate that is zero or unused is not written.

    Raises:
        UserError: the state would be zero for ever.
    """
    if cuts >= CANDIDATE:
        cuts = cuts | {Cut.WRITE}
    if Cut.WRITE in cuts:
        cuts = cuts - CANDIDATE
    if cuts >= {Cut.CARRY, Cut.WRITE}:
        raise UserError(
            f"cuts {sorted(map(str, cuts))} leave h = 0 at every step; keep carry or write"
        )
    return cuts


def input_blind(cuts: Cuts) -> bool:
    """Whether no path from the token is left (a control, not a model)."""
    return Cut.INPUT_TO_GATE in cuts and bool(cuts & {Cut.INPUT_TO_CANDIDATE, Cut.WRITE})


@CELLS("mgu")
class MGU(Cell):
    """One gate that both updates and resets; eight paths, each may be cut."""

    @config
    class Config:
        """Which paths are cut, equal functions being equal configs; `mutations=` takes numbers."""

        cuts: Cuts = frozenset()

        @model_validator(mode="before")
        @classmethod
        def _by_number(cls, given: Any) -> Any:
            fields = dict((given.kwargs if isinstance(given, ArgsKwargs) else given) or {})
            if "mutations" in fields:
                fields["cuts"] = fields.pop("mutations")
            return fields

        @field_validator("cuts", mode="before")
        @classmethod
        def _read(cls, cuts: object) -> Cuts:
            return canonical(by_number(Cut, cuts))

        def whole(self) -> Any:
            """Without the cuts that equal zero weights; no candidate is no write: c = tanh 0."""
            return MGU.Config(cuts=self.cuts & {Cut.CARRY})

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts = config.cuts
        h = width
        shapes = {
            "xf": (h, h), "hf": (h, h), "bf": (h,),
            "xh": (h, h), "hh": (h, h), "bh": (h,),
        }  # fmt: skip
        cut = {name for name, path in zip(shapes, Cut, strict=False) if path in self.cuts}
        if Cut.WRITE in self.cuts:
            cut |= {"xh", "hh", "bh"}
        self.w = Weights(shapes, cut, fan_in=h, biases={"bf", "bh"})

    @property
    def input_blind(self) -> bool:
        return input_blind(self.cuts)

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        return torch.cat([_affine(x, w.xf, w.bf), _affine(x, w.xh, w.bh)], dim=-1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        (h,), hf = state, self.w.hf
        xf = projected[..., : self.width]
        return {"f": torch.sigmoid(xf if hf is None else xf + h @ hf)}

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        (h,), w, cuts = state, self.w, self.cuts
        f, xh = self.gates(projected, state)["f"], projected[..., self.width :]
        if Cut.WRITE in cuts:
            h = (1 - f) * h
        else:
            c = torch.tanh(xh if w.hh is None else xh + (h * f) @ w.hh)
            h = f * c if Cut.CARRY in cuts else h + f * (c - h)
        return h, (h,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor:
        w = self.w
        sweep = MGUScan(carry=Cut.CARRY not in self.cuts, write=Cut.WRITE not in self.cuts)
        return scan_batch_first(sweep, x, start, (w.xf, w.hf, w.bf, w.xh, w.hh, w.bh))


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """X W + b with either missing."""
    y = torch.zeros_like(x) if weight is None else x @ weight
    return y if bias is None else y + bias
