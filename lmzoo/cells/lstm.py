r"""Long short-term memory (LSTM), with three kinds of forget gate.

    i, f, o = σ( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
    g       = tanh( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
    c_t     = f ⊙ c_{t-1} + i ⊙ g
    h_t     = o ⊙ tanh(c_t)

`forget=none` is f ≡ 1, the LSTM of 1997. `forget=coupled` is f = 1 − i, so that c_t interpolates
between c_{t-1} and g. Neither has weights for f; their other weights start with the same values as
in the full cell. Gates have the order i, f, g, o, with two biases, as in torch.nn.LSTM.

Hochreiter & Schmidhuber 1997; Gers et al. 2000; Greff et al. 2015 (arXiv:1503.04069). Source: S0,
S3, S4.
"""

from functools import partial
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.base.config import OptionalName, config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights, gate_shapes
from lmzoo.kernels.dispatch import has_gpu_kernels, has_product_kernels
from lmzoo.kernels.scan import scan_with_memory


class Forget(OptionalName):
    """The definition of f."""

    GATE = "gate"  # its own weights
    NONE = "none"  # f ≡ 1: nothing is forgotten
    COUPLED = "coupled"  # f = 1 − i


@CELLS("lstm")
class LSTM(Cell):
    """An LSTM layer; its state is (h, c)."""

    recurrent_weights = ("weight_hh",)
    takes_inputs = True

    num_state_vectors = 2

    @config
    class Config:
        """Kind and initial bias of the forget gate."""

        forget: Forget = Forget.GATE
        forget_bias: float | None = Field(None, allow_inf_nan=False)
        """Initial bias of the forget gate (the sum of its two biases); None draws both at random.
        With a large value (1 or more) the cell starts with f ≈ 1."""

        @model_validator(mode="after")
        def _bias_needs_a_gate(self) -> Any:
            if self.forget_bias is not None and self.forget is not Forget.GATE:
                raise UserError(
                    f"forget_bias={self.forget_bias} needs a forget gate, but forget="
                    f"{self.forget}; set forget=gate or remove forget_bias"
                )
            return self

    def __init__(self, config: Config, width: int, length: int, inputs: int = 0) -> None:
        super().__init__(config, width, length)
        adjust = partial(_adjust, forget=config.forget, bias=config.forget_bias)
        self.w = Weights(gate_shapes(width, inputs=inputs), cut=set(), fan_in=width, adjust=adjust)

    def project(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih + self.w.bias_hh)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        return self._gates_and_candidate(projected, state)[0]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        gates, g = self._gates_and_candidate(projected, state)
        c, i, o = state[1], gates["i"], gates["o"]
        if self.config.forget is Forget.GATE:
            c = gates["f"] * c + i * g
        else:
            c = (c if self.config.forget is Forget.NONE else (1 - i) * c) + i * g
        h = o * torch.tanh(c)
        return h, (h, c)

    def _gates_and_candidate(
        self, projected: Tensor, state: State
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return the gates and the candidate g, from a single matrix product."""
        rows = projected + state[0] @ self.w.weight_hh.T
        if self.config.forget is Forget.GATE:
            i, f, g, o = rows.chunk(4, dim=-1)
            gates = {"i": i, "f": f, "o": o}
        else:
            i, g, o = rows.chunk(3, dim=-1)
            gates = {"i": i, "o": o}
        return {name: torch.sigmoid(gate) for name, gate in gates.items()}, torch.tanh(g)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        done = self._kernel_scan(x, start)
        return done and done[0]

    def fast_scan_from(self, x: Inputs, state: State) -> tuple[Tensor, State] | None:
        done = self._kernel_scan(x, torch.cat(state, dim=-1))
        return done and (done[0], (done[0][:, -1], done[1]))

    def _kernel_scan(self, x: Inputs, start: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the outputs and the last c, which has no gradient; None without a kernel."""
        if has_gpu_kernels(start):
            from lmzoo.kernels.gpu.lstm import LSTMGpuScan
            from lmzoo.kernels.gpu.scan import gpu_scan_with_memory

            recurrence = LSTMGpuScan(self.config.forget.value)
            if not recurrence.fits(start):
                return None
            projected = self.project_inputs(x)
            return gpu_scan_with_memory(recurrence, projected, start, [self.w.weight_hh.mT])
        if not has_product_kernels(start):
            return None
        from lmzoo.kernels.cpu.lstm import LSTMScan

        w = self.w
        weights = (w.weight_ih.mT, w.bias_ih + w.bias_hh, w.weight_hh.mT)
        recurrence = LSTMScan(coupled=self.config.forget is Forget.COUPLED)
        return scan_with_memory(recurrence, x, start, weights)


def _adjust(name: str, drawn: Tensor, *, forget: Forget, bias: float | None) -> Tensor:
    """Drop the rows of f if there is no forget gate; set its biases if `forget_bias` is given."""
    i, f, g, o = drawn.chunk(4)
    if forget is not Forget.GATE:
        return torch.cat([i, g, o])
    if bias is not None and name.startswith("bias"):
        f = torch.full_like(f, bias if name == "bias_ih" else 0.0)
    return torch.cat([i, f, g, o])
