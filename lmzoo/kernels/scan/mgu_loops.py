"""The minimal gated unit's sweeps, compiled whole (`kernels/mgu.py`), in symbols of `mgu.py`."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import run_kernel
from lmzoo.kernels.scan.projections import Paths, zeros_like
from lmzoo.kernels.scan.recurrence import Kept, Loops, Weights


@dataclass(frozen=True)
class MGULoops(Loops):
    """Weights xf, hf, bf, xh, hh, bh; None where cut. A candidate of none is zero."""

    carry: bool

    def forward(self, x: Paths, start: Float[Tensor, "*P B H"], weights: Weights) -> Kept:
        from lmzoo.kernels.cpu import mgu as kernels

        xf, hf, bf, xh, hh, bh = weights
        kept = [start.new_empty(*x.shape, start.shape[-1]) for _ in range(3)]
        given = x.into(xf, bf), x.into(xh, bh), *x.arrays(hf, hh, start), self.carry
        if not run_kernel(kernels.forward, *given, *x.steps(*kept)):
            raise x.strange()
        return kept

    def reverse(
        self,
        upstream: Float[Tensor, "T *P B H"],
        x: Paths,
        start: Float[Tensor, "*P B H"],
        weights: Weights,
        kept: Kept,
    ) -> tuple[Tensor, Tensor, Weights]:
        from lmzoo.kernels.cpu import mgu as kernels

        xf, hf, bf, xh, hh, bh = weights
        (gate, of_gate), (candidate, of_candidate) = x.back(xf, bf), x.back(xh, bh)
        of_hf, of_hh, delta = zeros_like(hf), zeros_like(hh), start.new_empty(start.shape)
        given = gate, candidate, *x.arrays(hf, hh, start), self.carry, *x.steps(*kept)
        run_kernel(kernels.reverse, *x.steps(upstream), *given, *x.arrays(of_hf, of_hh, delta))
        (of_xf, of_bf), (of_xh, of_bh) = of_gate(), of_candidate()
        return x.found(), delta, (of_xf, of_hf, of_bf, of_xh, of_hh, of_bh)
