r"""The minimal gated unit (MGU) and its eight cuts.

    f_t = σ( x_t W_xf + h_{t-1} W_hf + b_f )                gate
    c_t = tanh( x_t W_xh + (h_{t-1} ⊙ f_t) W_hh + b_h )     candidate
    h_t = (1 − f_t) ⊙ h_{t-1} + f_t ⊙ c_t                   blend

S0 calls it a GRU; a GRU with one gate in both roles is the MGU. A cut replaces a term by zero:

    0  input_to_gate           x_t W_xf            4  state_to_candidate   (h_{t-1} ⊙ f_t) W_hh
    1  state_to_gate           h_{t-1} W_hf        5  candidate_bias       b_h
    2  gate_bias               b_f                 6  carry                (1 − f_t) ⊙ h_{t-1}
    3  input_to_candidate      x_t W_xh            7  write                f_t ⊙ c_t

The variants of Heck & Salem 2017 (arXiv:1701.03452) are cuts: MGU1 is input_to_gate (0), MGU2 also
gate_bias (2), MGU3 is input_to_gate (0) and state_to_gate (1).

Zhou et al. 2016 (arXiv:1603.09420). Source: S0 (DLM46).
"""

from enum import StrEnum
from typing import Any

import torch
from pydantic import field_validator, model_validator
from pydantic_core import ArgsKwargs
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights
from lmzoo.cells.cuts import numbered, parse_cuts
from lmzoo.kernels.affine import joint_affine
from lmzoo.kernels.dispatch import has_gpu_kernels, has_product_kernels
from lmzoo.kernels.scan import scan_batch_first

Cut = StrEnum(
    "Cut",
    "INPUT_TO_GATE STATE_TO_GATE GATE_BIAS INPUT_TO_CANDIDATE STATE_TO_CANDIDATE "
    "CANDIDATE_BIAS CARRY WRITE",
)
Cuts = frozenset[Cut]
CANDIDATE = frozenset({Cut.INPUT_TO_CANDIDATE, Cut.STATE_TO_CANDIDATE, Cut.CANDIDATE_BIAS})


def canonical(cuts: Cuts) -> Cuts:
    """Return the one set of cuts that stands for all sets with the same function.

    A candidate that is always zero counts as the cut write (7). With write (7), the other cuts of
    the candidate have no effect and are dropped.

    Raises:
        UserError: The state would be zero at every step.
    """
    if cuts >= CANDIDATE:
        cuts = cuts | {Cut.WRITE}
    if Cut.WRITE in cuts:
        cuts = cuts - CANDIDATE
    if cuts >= {Cut.CARRY, Cut.WRITE}:
        raise UserError(f"cuts {numbered(cuts)} leave h = 0 at every step; remove one of them")
    return cuts


@CELLS("mgu")
class MGU(Cell):
    """A recurrence with one gate that both updates and resets; each of eight terms can be cut."""

    outputs_state = True
    recurrent_weights = ("hf", "hh")

    @config
    class Config:
        """The cuts, by name or number; `mutations=` is another name of `cuts=`.

        Cuts that leave the same function give equal configs.
        """

        cuts: Cuts = frozenset()

        @model_validator(mode="before")
        @classmethod
        def _rename_mutations(cls, value: Any) -> Any:
            fields = dict((value.kwargs if isinstance(value, ArgsKwargs) else value) or {})
            if "mutations" in fields:
                fields["cuts"] = fields.pop("mutations")
            return fields

        @field_validator("cuts", mode="before")
        @classmethod
        def _parse(cls, cuts: object) -> Cuts:
            return canonical(parse_cuts(Cut, cuts))

        def uncut(self) -> Any:
            """Return the config without the cuts that zero weights can express: all but carry (6).

            They also express write (7), because c = tanh(0) = 0.
            """
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
        no_candidate = bool(self.cuts & {Cut.INPUT_TO_CANDIDATE, Cut.WRITE})
        return Cut.INPUT_TO_GATE in self.cuts and no_candidate

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        pair, biases = (w.xf, w.xh), (w.bf, w.bh)
        if has_gpu_kernels(x) and all(part is not None for part in pair + biases):
            return joint_affine(x, pair, biases)
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

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        if has_gpu_kernels(start):
            return self._gpu_scan(x, start)
        if not has_product_kernels(start):
            return None
        from lmzoo.kernels.cpu.mgu import MGUScan

        w, recurrence = self.w, MGUScan(carry=Cut.CARRY not in self.cuts)
        return scan_batch_first(recurrence, x, start, (w.xf, w.hf, w.bf, w.xh, w.hh, w.bh))

    def _gpu_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        from lmzoo.kernels.gpu.mgu import MGUGpuScan
        from lmzoo.kernels.gpu.scan import gpu_scan

        w, cuts = self.w, self.cuts
        weights = [weight for weight in (w.hf, w.hh) if weight is not None]
        recurrence = MGUGpuScan(
            gate=w.hf is not None, candidate=w.hh is not None,
            carry=Cut.CARRY not in cuts, write=Cut.WRITE not in cuts,
        )  # fmt: skip
        if not recurrence.fits(start):
            return None
        return gpu_scan(recurrence, self.project_inputs(x), start, weights)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return x W + b; a missing weight or bias counts as zero."""
    y = torch.zeros_like(x) if weight is None else x @ weight
    return y if bias is None else y + bias
