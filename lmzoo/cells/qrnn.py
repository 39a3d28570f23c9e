r"""The quasi-recurrent network (QRNN): a causal convolution, then gated pooling; seven cuts.

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

Bradbury et al. 2017 (arXiv:1611.01576).
"""

from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.functional.affine import affine
from lmzoo.functional.linear_recurrence import linear_recurrence

Cut = StrEnum("Cut", "PAST_INPUTS INPUT_TO_FORGET INPUT_TO_OUTPUT CARRY SQUASH OUTPUT_GATE BIASES")


@CELLS("qrnn")
class QRNN(Cell):
    """Gated pooling of a causal convolution; its state is c and the last k − 1 inputs."""

    zero_start = 1.0

    @config
    class Config:
        """The cuts, by name or number, the window k and the kind of pooling."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()
        window: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        write_gate: StrictBool = False
        """Put an input gate of its own in the place of 1 − f (ifo-pooling)."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts, h, k = config.cuts, width, config.window
        self.window = 1 if Cut.PAST_INPUTS in self.cuts else k
        self.gate_names = "f" + ("" if Cut.OUTPUT_GATE in self.cuts else "o")
        self.gate_names += "i" if config.write_gate else ""
        shapes = {f"x{name}": (k, h, h) for name in "zfoi"}
        shapes |= {f"b{name}": (h,) for name in "zfoi"}
        cut = {name for name in shapes if name[1] not in f"z{self.gate_names}"}
        cut |= {"bz", "bf", "bo", "bi"} if Cut.BIASES in self.cuts else set()
        paths = {"xf": Cut.INPUT_TO_FORGET, "xo": Cut.INPUT_TO_OUTPUT}
        cut |= {name for name, path in paths.items() if path in self.cuts}
        biases = {"bz", "bf", "bo", "bi"}
        self.w = Weights(shapes, cut, fan_in=k * h, adjust=self._keep_window, biases=biases)

    def _keep_window(self, name: str, drawn: Tensor) -> Tensor:
        return drawn[: self.window] if name[0] == "x" else drawn

    @property
    def state_size(self) -> int:
        return self.window * self.width

    def initial_state(self, start: Tensor) -> State:
        past = (torch.zeros_like(start) for _ in range(self.window - 1))
        return self.shift_start(start), *past

    def project(self, x: Tensor) -> Tensor:
        return x

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        return self._gates(torch.cat([projected, *state[1:]], dim=-1))

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        c, *past = state
        recent = torch.cat([projected, *past], dim=-1)
        gates = self._gates(recent)
        a, b = self._coefficients(recent, gates)
        c = a * c + b
        return self._output(c, gates), (c, *(projected, *past)[: self.window - 1])

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor:
        return self.fast_scan_from(x, self.initial_state(start))[0]

    def fast_scan_from(self, x: Inputs, state: State) -> tuple[Tensor, State]:
        c, *past = state
        x, size = self.project_inputs(x), self.window - 1
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
        z, f = self._affine("z", recent), gates["f"]
        z = z if Cut.SQUASH in self.cuts else torch.tanh(z)
        a = torch.zeros_like(f) if Cut.CARRY in self.cuts else f
        return a, (gates["i"] if "i" in gates else 1 - f) * z

    @staticmethod
    def _output(c: Tensor, gates: dict[str, Tensor]) -> Tensor:
        return gates["o"] * c if "o" in gates else c

    def _affine(self, name: str, recent: Tensor) -> Tensor:
        weight, bias = getattr(self.w, f"x{name}"), getattr(self.w, f"b{name}")
        if weight is None:
            return affine(recent[..., : self.width], None, bias)
        return affine(recent, weight.flatten(0, 1), bias)
