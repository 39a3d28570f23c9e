r"""The gated recurrent unit (GRU) in six variants.

    r, z = σ( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
    n    = tanh( x_t W_inᵀ + b_in + r ⊙ (h_{t-1} W_hnᵀ + b_hn) )     reset=after
         | tanh( x_t W_inᵀ + b_in + (r ⊙ h_{t-1}) W_hnᵀ + b_hn )     reset=before
         | tanh( (r ⊙ x_t) W_inᵀ + b_in + h_{t-1} W_hnᵀ + b_hn )     reset=input
    h_t  = (1 − z) ⊙ n + z ⊙ h_{t-1}                                 update=z_keeps
         | z ⊙ n + (1 − z) ⊙ h_{t-1}                                 update=z_writes

reset=after with update=z_keeps is torch.nn.GRU. reset=before is the published form and that of S4.
reset=input is the form printed in S3, a misprint: r gates the token instead of the state.
Gates have the order r, z, n, as in torch.nn.GRU.

Cho et al. 2014 (arXiv:1406.1078). Source: S0, S3, S4.
"""

from enum import StrEnum

import torch
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights, gate_shapes
from lmzoo.config import config
from lmzoo.kernels.dispatch import has_gpu_kernels, has_product_kernels
from lmzoo.kernels.scan import scan_batch_first


class Reset(StrEnum):
    """The vector that r multiplies."""

    AFTER = "after"  # h W_hn
    BEFORE = "before"  # h
    INPUT = "input"  # x


class Update(StrEnum):
    """The effect of z = 1: keep the old state, or write the candidate."""

    Z_KEEPS = "z_keeps"
    Z_WRITES = "z_writes"


@CELLS("gru")
class GRU(Cell):
    """A GRU layer."""

    outputs_state = True
    recurrent_weights = ("weight_hh",)

    @config
    class Config:
        """The variant; the default is that of torch.nn.GRU."""

        reset: Reset = Reset.AFTER
        update: Update = Update.Z_KEEPS

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.w = Weights(gate_shapes(width, gates=3), cut=set(), fan_in=width)

    def project(self, x: Tensor) -> Tensor:
        projected = nn.functional.linear(x, self.w.weight_ih, self.w.bias_ih)
        if self.config.reset is not Reset.INPUT:
            return projected
        # r multiplies x before W_in does, so `step` needs x itself.
        return torch.cat([projected[..., : 2 * self.width], x], dim=-1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        (h,), w, gates = state, self.w, 2 * self.width
        hrz = nn.functional.linear(h, w.weight_hh[:gates], w.bias_hh[:gates])
        r, z = torch.sigmoid(projected[..., :gates] + hrz).chunk(2, dim=-1)
        return {"r": r, "z": z}

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        (h,), w, gates = state, self.w, 2 * self.width
        r, z = self.gates(projected, state).values()
        xn, weight, bias = projected[..., gates:], w.weight_hh[gates:], w.bias_hh[gates:]
        if self.config.reset is Reset.BEFORE:
            n = xn + nn.functional.linear(r * h, weight, bias)
        elif self.config.reset is Reset.AFTER:
            n = xn + r * nn.functional.linear(h, weight, bias)
        else:
            n = nn.functional.linear(r * xn, w.weight_ih[gates:], w.bias_ih[gates:])
            n = n + nn.functional.linear(h, weight, bias)
        n = torch.tanh(n)
        h = n + z * (h - n) if self.config.update is Update.Z_KEEPS else h + z * (n - h)
        return h, (h,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        if self.config.reset is Reset.INPUT:
            return None
        if has_gpu_kernels(start):
            return self._gpu_scan(x, start)
        if not has_product_kernels(start):
            return None
        from lmzoo.kernels.cpu.gru import GRUScan

        w, gates = self.w, 2 * self.width
        before = self.config.reset is Reset.BEFORE
        inner = w.bias_hh[gates:]  # b_hn, which reset=after multiplies by r
        bias = w.bias_ih + (
            w.bias_hh if before else nn.functional.pad(w.bias_hh[:gates], (0, self.width))
        )
        recurrence = GRUScan(reset_before=before, z_keeps=self.config.update is Update.Z_KEEPS)
        hidden = w.weight_hh.mT
        weights = (
            w.weight_ih.mT, bias, hidden[:, :gates], hidden[:, gates:], None if before else inner
        )  # fmt: skip
        return scan_batch_first(recurrence, x, start, weights)

    def _gpu_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        from lmzoo.kernels.gpu.gru import GRUGpuScan
        from lmzoo.kernels.gpu.scan import gpu_scan

        w, gates = self.w, 2 * self.width
        before = self.config.reset is Reset.BEFORE
        recurrence = GRUGpuScan(before, self.config.update is Update.Z_KEEPS)
        if not recurrence.fits(start):
            return None
        # With reset=before all of b_hh is added to the projected inputs, else that of r and z.
        added = w.bias_hh if before else nn.functional.pad(w.bias_hh[:gates], (0, self.width))
        weights = [w.weight_hh.mT, w.bias_hh[None, gates:]]
        return gpu_scan(recurrence, self.project_inputs(x) + added, start, weights)
