"""The MGRU's sweeps, compiled whole (`kernels/mgru.py`), in symbols of `mgru.py`."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import run_kernel
from lmzoo.kernels.scan.projections import Paths, zeros_like
from lmzoo.kernels.scan.recurrence import Kept, Loops, Weights


@dataclass(frozen=True)
class MGRULoops(Loops):
    """Weights hf, xh; None where cut."""

    carry: bool
    write: bool
    keep: bool
    sigmoid: bool
    read: str
    limit: float

    def forward(self, x: Paths, start: Float[Tensor, "*P B H"], weights: Weights) -> Kept:
        from lmzoo.kernels.cpu import mgru as kernels

        hf, xh = weights
        kept = [start.new_empty(*x.shape, start.shape[-1]) for _ in range(3)]
        given = x.into(xh, None), *x.arrays(hf, start), self._variant()
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
        from lmzoo.kernels.cpu import mgru as kernels

        hf, xh = weights
        candidate, of_candidate = x.back(xh, None)
        of_hf, delta = zeros_like(hf), start.new_empty(start.shape)
        given = candidate, *x.arrays(hf, start), self._variant(), *x.steps(*kept)
        run_kernel(kernels.reverse, *x.steps(upstream), *given, *x.arrays(of_hf, delta))
        return x.found(), delta, (of_hf, of_candidate()[0])

    def _variant(self) -> Any:
        from lmzoo.kernels.cpu.mgru import Variant

        reads = self.read == "centred", self.read == "logit"
        return Variant(
            self.carry, self.write, self.carry - self.keep, self.sigmoid, *reads, self.limit
        )
