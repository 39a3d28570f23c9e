r"""The simple recurrent unit (SRU) and its ten cuts.

    f_t = σ( x_t W_f + v_f ⊙ c_{t-1} + b_f )               forget gate
    r_t = σ( x_t W_r + v_r ⊙ c_{t-1} + b_r )               reset gate
    c_t = f_t ⊙ c_{t-1} + (1 − f_t) ⊙ (x_t W)              state
    h_t = r_t ⊙ c_t + (1 − r_t) ⊙ α x_t                    highway

α = √(1 + 2 exp(b_r)) is constant, from the initial b_r. A cut replaces a term:

    0  input_to_forget   x_t W_f               5  reset_bias   b_r
    1  state_to_forget   v_f ⊙ c_{t-1}         6  carry        f_t ⊙ c_{t-1}
    2  forget_bias       b_f                   7  skip         (1 − r_t) ⊙ α x_t
    3  input_to_reset    x_t W_r               8  reset_gate   r_t ⊙ c_t → c_t; (1 − r_t) ⊙ → 1 ⊙
    4  state_to_reset    v_r ⊙ c_{t-1}         9  scale        α → 1

skip and reset_gate together leave h = c_t. Without both paths from the state (1, 4), the scan is
parallel. W starts with variance 1 / H, W_f, W_r and v with half of it and ½, biases at 0 and b_r,
as in the published code.

Differences from the authors' code (asappresearch/sru, `modules.py`):

    there                              here                        why
    layers of their own width          H = E                       cells here have one width

Lei et al. 2018 (arXiv:1709.02755).
"""

import dataclasses
import math
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.functional.affine import affine

Cut = StrEnum(
    "Cut",
    "INPUT_TO_FORGET STATE_TO_FORGET FORGET_BIAS INPUT_TO_RESET STATE_TO_RESET RESET_BIAS "
    "CARRY SKIP RESET_GATE SCALE",
)
WEIGHTS = dict(zip(("xf", "cf", "bf", "xr", "cr", "br"), Cut, strict=False))
"""The cut of each weight that a cut sets to zero."""
RESET = {Cut.INPUT_TO_RESET, Cut.STATE_TO_RESET, Cut.RESET_BIAS}


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    if Cut.RESET_GATE in cuts:
        cuts = cuts - RESET
    return cuts - {Cut.SCALE} if Cut.SKIP in cuts else cuts


@CELLS("sru")
class SRU(DiagonalCell):
    """An elementwise recurrence with a highway to its input."""

    @config
    class Config:
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()
        highway_bias: float = Field(0.0, ge=-8, le=8)
        """The initial b_r."""

        def uncut(self) -> Any:
            """Return the config without the cuts that zero weights can express."""
            return dataclasses.replace(self, cuts=self.cuts - set(WEIGHTS.values()))

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts, h = config.cuts, width
        shapes = {name: (h, h) if name[0] == "x" else (h,) for name in WEIGHTS} | {"x": (h, h)}
        cut = {name for name, path in WEIGHTS.items() if path in self.cuts}
        if Cut.RESET_GATE in self.cuts:
            cut |= {"xr", "cr", "br"}
        half = partial(_uniform, variance=0.5)
        own = {"x": _uniform, "xf": half, "xr": half, "cf": half, "cr": half}
        own |= {"bf": torch.zeros, "br": partial(torch.full, fill_value=config.highway_bias)}
        self.w = Weights(shapes, cut, fan_in=h, biases={"bf", "br"}, own=own)
        scaled = Cut.SCALE not in self.cuts
        self.alpha = math.sqrt(1 + 2 * math.exp(config.highway_bias)) if scaled else 1.0

    @property
    def reads_state(self) -> bool:
        return self.w.cf is not None or self.w.cr is not None

    def project(self, x: Tensor) -> Tensor:
        w, parts = self.w, [x]
        parts += [x @ w.x, affine(x, w.xf, w.bf)]
        if Cut.RESET_GATE not in self.cuts:
            parts.append(affine(x, w.xr, w.br))
        return torch.cat(parts, dim=-1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        _, _, *logits = projected.split(self.width, dim=-1)
        gates = {}
        for name, logit, v in zip("fr", logits, (self.w.cf, self.w.cr), strict=False):
            gates[name] = torch.sigmoid(logit if v is None else logit + v * state[0])
        return gates

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        f = self.gates(projected, () if s is None else (s,))["f"]
        candidate = projected[..., self.width : 2 * self.width]
        return torch.zeros_like(f) if Cut.CARRY in self.cuts else f, (1 - f) * candidate

    def read(self, s: Tensor, projected: Tensor, before: Tensor | None) -> Tensor:
        r = self.gates(projected, () if before is None else (before,)).get("r")
        h = s if r is None else r * s
        if Cut.SKIP in self.cuts:
            return h
        x = self.alpha * projected[..., : self.width]
        return h + (x if r is None else (1 - r) * x)


def _uniform(shape: tuple[int, ...], variance: float = 1.0) -> Tensor:
    """Draw a matrix with this variance over its fan-in, or a vector with this variance."""
    fan_in = shape[0] if len(shape) == 2 else 1
    limit = math.sqrt(3 * variance / fan_in)
    return torch.empty(shape).uniform_(-limit, limit)
