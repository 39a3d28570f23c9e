r"""What a recurrence reads at each step, and the way back to it, operation by operation.

    a_t = x_t W + b      ∂L/∂W = Σ_t x_tᵀ d_t      ∂L/∂b = Σ_t d_t      ∂L/∂x_t = Σ_a d_t Wᵀ

with d_t = ∂L/∂a_t; all steps by one product. Compiled sweeps have `paths.py`.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.scan.products import accumulate, apart, biased, product, projected
from lmzoo.kernels.scan.step_buffers import Steps


class StepInputs:
    """x (T, *P, B, E), laid out."""

    def __init__(self, x: Float[Tensor, "T *P B E"]) -> None:
        self.shape, self._x = x.shape[:-1], Steps(x)
        self._through: list[tuple[Steps, Tensor]] = []

    def projected(
        self,
        weight: Float[Tensor, "*P E G"] | None,
        bias: Float[Tensor, "*P G"] | None,
        out: Float[Tensor, "T *P B G"],
    ) -> tuple[Float[Tensor, "*P B G"], ...]:
        """Each out_t = x_t W + b, with either missing."""
        if weight is None:
            return biased(bias, out)
        return projected(self._x.every, weight, bias, out)

    def of_weight(self, weight: Float[Tensor, "*P E G"], d: Steps) -> Callable[[], Tensor]:
        """∂L/∂W, when every d_t is there; ∂L/∂x gets its share."""
        self._through.append((d, weight))
        x = self._x
        return lambda: x.rows.mT @ d.rows

    def found(self) -> Float[Tensor, "T *P B E"]:
        """The gradient of the inputs, when every d_t is there."""
        x = self._x
        if not self._through:
            return x.every.new_zeros(x.every.shape)
        rows = x.rows.new_empty(x.rows.shape)
        for k, (d, weight) in enumerate(self._through):
            back = weight.mT
            _ = accumulate(rows, d.rows, back) if k else product(d.rows, back, rows)
        return apart(rows, len(x.every))
