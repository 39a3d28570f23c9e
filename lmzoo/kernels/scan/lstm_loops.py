"""Long short-term memory's sweeps, compiled whole (`kernels/lstm.py`), in symbols of `lstm.py`."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import run_kernel
from lmzoo.kernels.scan.projections import Paths, zeros_like
from lmzoo.kernels.scan.recurrence import Kept, Loops, Weights


@dataclass(frozen=True)
class LSTMLoops(Loops):
    """Weights W_x, b, W_h, with columns of f or without; start is (h, c)."""

    coupled: bool

    def forward(self, x: Paths, start: Float[Tensor, "*P B S"], weights: Weights) -> Kept:
        from lmzoo.kernels.cpu import lstm as kernels

        into, bias, hidden = weights
        assert hidden is not None
        h, c = start.chunk(2, dim=-1)
        columns = h.shape[-1], hidden.shape[-1], c.shape[-1]
        kept = [start.new_empty(*x.shape, g) for g in columns]
        given = x.into(into, bias), *x.arrays(hidden, h, c), self.coupled
        if not run_kernel(kernels.forward, *given, *x.steps(*kept)):
            raise x.strange()
        return kept

    def reverse(
        self,
        upstream: Float[Tensor, "T *P B H"],
        x: Paths,
        start: Float[Tensor, "*P B S"],
        weights: Weights,
        kept: Kept,
    ) -> tuple[Tensor, Tensor, Weights]:
        from lmzoo.kernels.cpu import lstm as kernels

        into, bias, hidden = weights
        h, c = start.chunk(2, dim=-1)
        read, of_read = x.back(into, bias)
        of_hidden, (delta, gamma) = zeros_like(hidden), start.new_empty(2, *h.shape)
        given = read, *x.arrays(hidden, h, c), self.coupled, *x.steps(*kept)
        run_kernel(kernels.reverse, *x.steps(upstream), *given, *x.arrays(of_hidden, delta, gamma))
        of_into, of_bias = of_read()
        return x.found(), torch.cat([delta, gamma], dim=-1), (of_into, of_bias, of_hidden)
