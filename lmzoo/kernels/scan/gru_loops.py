"""The gated recurrent unit's sweeps, compiled whole (`kernels/gru.py`), in symbols of `gru.py`."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import run_kernel
from lmzoo.kernels.scan.projections import Paths, zeros_like
from lmzoo.kernels.scan.recurrence import Kept, Loops, Weights


@dataclass(frozen=True)
class GRULoops(Loops):
    """Weights W_x, its bias, W_g, W_h, b_h; the first, second and last None where cut."""

    reset_before: bool
    z_keeps: bool

    def forward(self, x: Paths, start: Float[Tensor, "*P B H"], weights: Weights) -> Kept:
        from lmzoo.kernels.cpu import gru as kernels

        into, bias, gate, hidden, hidden_bias = weights
        kept = [start.new_empty(*x.shape, start.shape[-1]) for _ in range(5)]
        paths = x.into(into, bias), x.into(None, hidden_bias)
        given = *paths, *x.arrays(gate, hidden, start), self.reset_before, self.z_keeps
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
        from lmzoo.kernels.cpu import gru as kernels

        into, bias, gate, hidden, hidden_bias = weights
        (paths, of_paths), (inside, of_inside) = x.back(into, bias), x.back(None, hidden_bias)
        of_gate, of_hidden = zeros_like(gate), zeros_like(hidden)
        delta = start.new_empty(start.shape)
        given = paths, inside, *x.arrays(gate, hidden, start), self.reset_before, self.z_keeps
        found = x.arrays(of_gate, of_hidden, delta)
        run_kernel(kernels.reverse, *x.steps(upstream), *given, *x.steps(*kept), *found)
        (of_into, of_bias), (_, of_hidden_bias) = of_paths(), of_inside()
        return x.found(), delta, (of_into, of_bias, of_gate, of_hidden, of_hidden_bias)
