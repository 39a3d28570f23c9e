r"""MUT1, MUT2, MUT3: the three best of ten thousand recurrences that were searched by mutation.

    r_t = σ( x_t W_xr + h_{t-1} W_hr + b_r )                     variant=1
        | σ( x_t + h_{t-1} W_hr + b_r )                          variant=2
        | σ( x_t W_xr + h_{t-1} W_hr + b_r )                     variant=3
    z_t = σ( x_t W_xz + b_z )                                    variant=1
        | σ( x_t W_xz + h_{t-1} W_hz + b_z )                     variant=2
        | σ( x_t W_xz + tanh(h_{t-1}) W_hz + b_z )               variant=3
    n_t = tanh( tanh(x_t) + (r_t ⊙ h_{t-1}) W_hh + b_h )         variant=1
        | tanh( x_t W_xh + (r_t ⊙ h_{t-1}) W_hh + b_h )          variant=2
        | tanh( x_t W_xh + (r_t ⊙ h_{t-1}) W_hh + b_h )          variant=3
    h_t = z_t ⊙ n_t + (1 − z_t) ⊙ h_{t-1}

They are near the `gru` with reset=before and update=z_writes. MUT1 and MUT2 need a state as wide as
the input, which all cells here have. Weights shared with the other variants start with the same
values. MUT3 has no kernel.

Jozefowicz et al. 2015 (http://proceedings.mlr.press/v37/jozefowicz15.html).
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights
from lmzoo.kernels.dispatch import has_gpu_kernels, has_product_kernels
from lmzoo.kernels.scan import scan_batch_first
from lmzoo.kernels.tokens import TokenInputs


@CELLS("mut")
class Mut(Cell):
    """A unit with two gates; its state is h."""

    outputs_state = True
    recurrent_weights = ("hr", "hz", "hh")

    @config
    class Config:
        """The mutant."""

        variant: Annotated[int, Choice((1, 2, 3))] = Field(1, ge=1, le=3)

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        shapes = {name: (width, width) for name in ("xr", "hr", "xz", "hz", "xh", "hh")}
        cut = {1: {"hz", "xh"}, 2: {"xr"}, 3: set[str]()}[config.variant]
        biases = {name: (width,) for name in ("br", "bz", "bh")}
        self.w = Weights({**shapes, **biases}, cut, fan_in=width, biases=set(biases))

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        r = x if w.xr is None else x @ w.xr
        n = torch.tanh(x) if w.xh is None else x @ w.xh
        return torch.cat([r + w.br, x @ w.xz + w.bz, n + w.bh], dim=-1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        (h,), w = state, self.w
        r, z, _ = projected.chunk(3, dim=-1)
        if w.hz is not None:
            z = z + (torch.tanh(h) if self.config.variant == 3 else h) @ w.hz
        return {"r": torch.sigmoid(r + h @ w.hr), "z": torch.sigmoid(z)}

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        (h,), (r, z) = state, self.gates(projected, state).values()
        n = torch.tanh(projected[..., 2 * self.width :] + (r * h) @ self.w.hh)
        h = h + z * (n - h)
        return h, (h,)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        """Run the kernel of the GRU; MUT1's candidate reads tanh(x), a second half of the input."""
        if self.config.variant == 3 or has_gpu_kernels(start) or not has_product_kernels(start):
            return None
        from lmzoo.kernels.cpu.gru import GRUScan

        w, one = self.w, torch.eye(self.width, dtype=start.dtype)
        zero = torch.zeros_like(w.hr)
        if self.config.variant == 1:
            x = (
                TokenInputs(x.tokens, _doubled(x.table))
                if isinstance(x, TokenInputs)
                else _doubled(x)
            )
            inputs = torch.cat([torch.cat([w.xr, w.xz, zero], 1), torch.cat([zero, zero, one], 1)])
        else:
            inputs = torch.cat([one, w.xz, w.xh], dim=1)
        gate = torch.cat([w.hr, zero if w.hz is None else w.hz], dim=1)
        weights = (inputs, torch.cat([w.br, w.bz, w.bh]), gate, w.hh, None)
        return scan_batch_first(GRUScan(reset_before=True, z_keeps=False), x, start, weights)


def _doubled(x: Tensor) -> Tensor:
    return torch.cat([x, torch.tanh(x)], dim=-1)
