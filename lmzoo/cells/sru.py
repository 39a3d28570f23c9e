"""Elementwise recurrences with gates: SRU and QRNN."""

import math
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool, model_validator
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights, affine
from lmzoo.cells.cuts import ZeroWeights, cuts_of
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.functional.linear_recurrence import linear_recurrence

SRUCut = StrEnum(
    "SRUCut",
    "INPUT_TO_FORGET STATE_TO_FORGET FORGET_BIAS INPUT_TO_RESET STATE_TO_RESET RESET_BIAS "
    "CARRY SKIP RESET_GATE SCALE",
)
WEIGHTS = dict(zip(("xf", "cf", "bf", "xr", "cr", "br"), SRUCut, strict=False))
"""The cut of each weight that a cut sets to zero."""
RESET = {SRUCut.INPUT_TO_RESET, SRUCut.STATE_TO_RESET, SRUCut.RESET_BIAS}


@CELLS("sru")
class SRU(DiagonalCell):
    """An elementwise recurrence with a highway to its input.

        f_t = σ( x_t W_f + v_f ⊙ c_{t-1} + b_f )               forget gate
        r_t = σ( x_t W_r + v_r ⊙ c_{t-1} + b_r )               reset gate
        c_t = f_t ⊙ c_{t-1} + (1 − f_t) ⊙ (x_t W)              state
        h_t = r_t ⊙ c_t + (1 − r_t) ⊙ α x_t                    highway

    α = √(1 + 2 exp(b_r)) is constant, from the initial b_r. A cut replaces a term:

        0  input_to_forget   x_t W_f               5  reset_bias  b_r
        1  state_to_forget   v_f ⊙ c_{t-1}         6  carry       f_t ⊙ c_{t-1}
        2  forget_bias       b_f                   7  skip        (1 − r_t) ⊙ α x_t
        3  input_to_reset    x_t W_r               8  reset_gate  r_t ⊙ c_t → c_t; (1 − r_t) ⊙ → 1 ⊙
        4  state_to_reset    v_r ⊙ c_{t-1}         9  scale       α → 1

    skip and reset_gate together leave h = c_t. Without both paths from the state (1, 4), the scan
    is parallel. W starts with variance 1 / H, W_f, W_r and v with half of it and ½, biases at 0 and
    b_r, as in the published code.

    Differences from the authors' code (asappresearch/sru, `modules.py`):

        there                              here                        why
        layers of their own width          H = E                       cells here have one width

    Lei et al. 2018 (arXiv:1709.02755).
    """

    @config
    class Config(ZeroWeights):
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        zero_weights = frozenset(WEIGHTS.values())
        cuts: Annotated[
            frozenset[SRUCut],
            cuts_of(SRUCut, {SRUCut.RESET_GATE: RESET, SRUCut.SKIP: [SRUCut.SCALE]}),
        ] = frozenset()
        highway_bias: float = Field(0.0, ge=-8, le=8)
        """The initial b_r."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts = config.cuts
        h = width
        shapes = {name: (h, h) if name[0] == "x" else (h,) for name in WEIGHTS} | {"x": (h, h)}
        cut = {name for name, path in WEIGHTS.items() if path in self.cuts}
        if SRUCut.RESET_GATE in self.cuts:
            cut |= {"xr", "cr", "br"}
        half = partial(_uniform, variance=0.5)
        own = {"x": _uniform, "xf": half, "xr": half, "cf": half, "cr": half}
        own |= {"bf": torch.zeros, "br": partial(torch.full, fill_value=config.highway_bias)}
        self.w = Weights(shapes, cut, fan_in=h, biases={"bf", "br"}, own=own)
        scaled = SRUCut.SCALE not in self.cuts
        if scaled:
            self.alpha = math.sqrt(1 + 2 * math.exp(config.highway_bias))
        else:
            self.alpha = 1.0

    @property
    def reads_state(self) -> bool:
        return self.w.cf is not None or self.w.cr is not None

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        parts = [x]
        parts += [x @ w.x, affine(x, w.xf, w.bf)]
        if SRUCut.RESET_GATE not in self.cuts:
            parts.append(affine(x, w.xr, w.br))
        return torch.cat(parts, dim=-1)

    def _gates(self, projected: Tensor, c: Tensor | None) -> list[Tensor]:
        """Return f, and r if there is one; `c` is c_{t-1}."""
        _, _, *logits = projected.split(self.width, dim=-1)
        paths = zip(logits, (self.w.cf, self.w.cr), strict=False)
        return [torch.sigmoid(u if v is None or c is None else u + v * c) for u, v in paths]

    def coefficients(self, projected: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        f = self._gates(projected, s)[0]
        candidate = projected[..., self.width : 2 * self.width]
        written = (1 - f) * candidate
        if SRUCut.CARRY in self.cuts:
            return torch.zeros_like(f), written
        return f, written

    def read(self, s: Tensor, projected: Tensor, before: Tensor | None) -> Tensor:
        _, *r = self._gates(projected, before)
        if r:
            h = r[0] * s
        else:
            h = s
        if SRUCut.SKIP in self.cuts:
            return h
        x = self.alpha * projected[..., : self.width]
        if r:
            x = (1 - r[0]) * x
        return h + x


def _uniform(shape: tuple[int, ...], variance: float = 1.0) -> Tensor:
    """Draw a matrix with this variance over its fan-in, or a vector with this variance."""
    if len(shape) == 2:
        fan_in = shape[0]
    else:
        fan_in = 1
    limit = math.sqrt(3 * variance / fan_in)
    return torch.empty(shape).uniform_(-limit, limit)


QRNNCut = StrEnum(
    "QRNNCut", "PAST_INPUTS INPUT_TO_FORGET INPUT_TO_OUTPUT CARRY SQUASH OUTPUT_GATE BIASES"
)


@CELLS("qrnn")
class QRNN(Cell):
    """Gated pooling of a causal convolution; its state is c and the last k − 1 inputs.

        z_t = tanh( Σ_j x_{t-j} Z_j + b_z )       f_t = σ( Σ_j x_{t-j} F_j + b_f )
        o_t = σ( Σ_j x_{t-j} O_j + b_o )          i_t = σ( Σ_j x_{t-j} I_j + b_i )
        c_t = f_t ⊙ c_{t-1} + (1 − f_t) ⊙ z_t     write_gate=False
            | f_t ⊙ c_{t-1} + i_t ⊙ z_t           write_gate=True
        h_t = o_t ⊙ c_t                           fo-pooling; j from 0 to window − 1

    Inputs before the first are zero. With `write_gate` it is ifo-pooling. A cut replaces a term:

        0  past_inputs      Σ_j x_{t-j} → x_t; Z_j → Z_0; F_j → F_0; O_j → O_0; I_j → I_0: window 1
        1  input_to_forget  Σ_j x_{t-j} F_j               4  squash        tanh(u) → u
        2  input_to_output  Σ_j x_{t-j} O_j               5  output_gate   o_t → 1: f-pooling
        3  carry            f_t ⊙ c_{t-1}                 6  biases        b_z; b_f; b_o; b_i

    The published networks have windows of 2 (language models) to 6.

    Differences from salesforce/pytorch-qrnn (`torchqrnn/qrnn.py`):

        there                              here                        why
        window 1 by default                window 2                    the paper's language models
        f writes: f z + (1 − f) c_{t-1}    f keeps, as in the paper    the same with −F, −b_f; not
                                                                       for a set b_f or zoneout

    Bradbury et al. 2017 (arXiv:1611.01576).
    """

    zero_start = 1.0

    @config
    class Config:
        """The cuts, by name or number, the window k and the kind of pooling."""

        cuts: Annotated[
            frozenset[QRNNCut], cuts_of(QRNNCut, {QRNNCut.OUTPUT_GATE: [QRNNCut.INPUT_TO_OUTPUT]})
        ] = frozenset()
        window: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        write_gate: StrictBool = False
        """Put an input gate of its own in the place of 1 − f (ifo-pooling)."""

        @model_validator(mode="after")
        def _one_config_per_function(self) -> Any:
            cuts = self.cuts
            if self.window == 1:
                cuts = cuts - {QRNNCut.PAST_INPUTS}
            if self.write_gate and QRNNCut.CARRY in cuts:  # f has no effect
                cuts = cuts - {QRNNCut.INPUT_TO_FORGET}
            object.__setattr__(self, "cuts", cuts)
            return self

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts = config.cuts
        h = width
        k = config.window
        if QRNNCut.PAST_INPUTS in self.cuts:
            self.window = 1
        else:
            self.window = k
        gone = set("o" if QRNNCut.OUTPUT_GATE in self.cuts else "")
        if config.write_gate:
            if QRNNCut.CARRY in self.cuts:
                gone.add("f")
        else:
            gone |= set("i")
        self.gate_names = "".join(gate for gate in "foi" if gate not in gone)
        shapes = {f"x{name}": (k, h, h) for name in "zfoi"}
        shapes |= {f"b{name}": (h,) for name in "zfoi"}
        cut = {name for name in shapes if name[1] not in f"z{self.gate_names}"}
        biases = {f"b{name}" for name in "zfoi"}
        if QRNNCut.BIASES in self.cuts:
            cut |= biases
        paths = {"xf": QRNNCut.INPUT_TO_FORGET, "xo": QRNNCut.INPUT_TO_OUTPUT}
        cut |= {name for name, path in paths.items() if path in self.cuts}
        self.w = Weights(shapes, cut, fan_in=k * h, adjust=self._keep_window, biases=biases)

    def _keep_window(self, name: str, drawn: Tensor) -> Tensor:
        if name[0] == "x":
            return drawn[: self.window]
        return drawn

    @property
    def state_size(self) -> int:
        return self.window * self.width

    def initial_state(self, start: Tensor) -> State:
        past = (torch.zeros_like(start) for _ in range(self.window - 1))
        return self.shift_start(start), *past

    def project(self, x: Tensor) -> Tensor:
        return x

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        c, *past = state
        recent = torch.cat([projected, *past], dim=-1)
        gates = self._gates(recent)
        a, b = self._coefficients(recent, gates)
        c = a * c + b
        return self._output(c, gates), (c, *(projected, *past)[: self.window - 1])

    def fast_scan_from(self, x: Inputs, state: State) -> tuple[Tensor, State]:
        c, *past = state
        x = self.project_inputs(x)
        size = self.window - 1
        inputs = torch.cat([*(part[:, None] for part in reversed(past)), x], dim=1)
        steps = x.shape[1]
        recent = torch.cat([inputs[:, size - j :][:, :steps] for j in range(self.window)], dim=-1)
        gates = self._gates(recent)
        c = linear_recurrence(*self._coefficients(recent, gates), c)
        last = inputs[:, inputs.shape[1] - size :].flip(1).unbind(1)
        return self._output(c, gates), (c[:, -1], *last)

    def _gates(self, recent: Float[Tensor, "*N kE"]) -> dict[str, Tensor]:
        return {name: torch.sigmoid(self._affine(name, recent)) for name in self.gate_names}

    def _coefficients(self, recent: Tensor, gates: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        z = self._affine("z", recent)
        if QRNNCut.SQUASH not in self.cuts:
            z = torch.tanh(z)
        if QRNNCut.CARRY in self.cuts:
            a = torch.zeros_like(z)
        else:
            a = gates["f"]
        write = gates.get("i")
        if write is None:
            write = 1 - gates["f"]
        return a, write * z

    @staticmethod
    def _output(c: Tensor, gates: dict[str, Tensor]) -> Tensor:
        if "o" in gates:
            return gates["o"] * c
        return c

    def _affine(self, name: str, recent: Tensor) -> Tensor:
        weight = getattr(self.w, f"x{name}")
        bias = getattr(self.w, f"b{name}")
        if weight is None:
            return affine(recent[..., : self.width], None, bias)
        return affine(recent, weight.flatten(0, 1), bias)
