"""The vanilla recurrent network's sweeps, compiled whole (`kernels/rnn.py`), as in `rnn.py`."""

from dataclasses import dataclass
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import run_kernel
from lmzoo.kernels.scan.projections import Paths, zeros_like
from lmzoo.kernels.scan.recurrence import Kept, Loops, Weights

Activation = Literal["tanh", "sigmoid", "relu", "identity"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
"""The loops know each by its place here."""


@dataclass(frozen=True)
class RNNLoops(Loops):
    """Weights W_x, b, W_h."""

    activation: Activation

    def forward(self, x: Paths, start: Float[Tensor, "*P B H"], weights: Weights) -> Kept:
        from lmzoo.kernels.cpu import rnn as kernels

        into, bias, hidden = weights
        assert hidden is not None
        states = start.new_empty(*x.shape, start.shape[-1])
        given = x.into(into, bias), *x.arrays(hidden, start), self._act
        if not run_kernel(kernels.forward, *given, *x.steps(states)):
            raise x.strange()
        return [states]

    def reverse(
        self,
        upstream: Float[Tensor, "T *P B H"],
        x: Paths,
        start: Float[Tensor, "*P B H"],
        weights: Weights,
        kept: Kept,
    ) -> tuple[Tensor, Tensor, Weights]:
        from lmzoo.kernels.cpu import rnn as kernels

        into, bias, hidden = weights
        assert hidden is not None
        inputs, of_inputs = x.back(into, bias)
        of_hidden, delta = zeros_like(hidden), start.new_empty(start.shape)
        given = inputs, *x.arrays(hidden, start), self._act, *x.steps(*kept)
        run_kernel(kernels.reverse, *x.steps(upstream), *given, *x.arrays(of_hidden, delta))
        return x.found(), delta, (*of_inputs(), of_hidden)

    @property
    def _act(self) -> int:
        return ACTIVATIONS.index(self.activation)
