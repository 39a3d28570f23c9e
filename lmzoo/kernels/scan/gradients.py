r"""The inputs of a torch sweep, and the gradients of weights, biases and inputs after it.

    a_t = x_t W_x + q_t W_q + b          d_t = ∂L/∂a_t, computed by the backward sweep

    ∂L/∂W_x = Σ_t x_tᵀ d_t,  ∂L/∂x_t = Σ_a d_t W_xᵀ     ∂L/∂W_q = Σ_t q_tᵀ d_t     ∂L/∂b = Σ_t d_t

The sweep stores every d_t; each gradient is one product over all steps afterwards.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.scan.operations import (
    StepBuffer,
    add_product,
    previous_states,
    product,
    product_over_steps,
    project_steps,
    unflatten_steps,
)


class StepInputs:
    """The inputs x (T, *P, B, E) of a sweep, a result of `contiguous_copy`."""

    def __init__(self, x: Float[Tensor, "T *P B E"]) -> None:
        self.shape, self._x = x.shape[:-1], StepBuffer(x)
        self._projections: list[tuple[StepBuffer, Tensor]] = []

    def project(
        self,
        weight: Float[Tensor, "*P E G"] | None,
        bias: Float[Tensor, "*P G"] | None,
        out: Float[Tensor, "T *P B G"],
    ) -> tuple[Float[Tensor, "*P B G"], ...]:
        """Write out_t = x_t W + b, weight or bias absent; return the steps of `out`."""
        return project_steps(self._x.tensor, weight, bias, out)

    def weight_gradient(
        self, weight: Float[Tensor, "*P E G"], d: StepBuffer
    ) -> Callable[[], Tensor]:
        """Register d for ∂L/∂x; return a function that computes ∂L/∂W once d is written."""
        self._projections.append((d, weight))
        x = self._x
        return lambda: x.rows.mT @ d.rows

    def gradient(self) -> Float[Tensor, "T *P B E"]:
        """Return ∂L/∂x; call it once every registered d is written."""
        x = self._x
        if not self._projections:
            return x.tensor.new_zeros(x.tensor.shape)
        rows = x.rows.new_empty(x.rows.shape)
        for k, (d, weight) in enumerate(self._projections):
            w = weight.mT
            _ = add_product(rows, d.rows, w) if k else product(d.rows, w, rows)
        return unflatten_steps(rows, len(x.tensor))


class Gradients:
    """Collects the gradients of a sweep's weights, and computes them after the sweep.

    The backward sweep calls one method per weight, in the order of its weights. The gradient of an
    absent weight is None.
    """

    def __init__(
        self,
        inputs: StepInputs,
        start: Float[Tensor, "*P B H"],
        states: Float[Tensor, "T *P B H"],
    ) -> None:
        self._inputs, self._start, self._states = inputs, start, states
        self._requests: list[Callable[[], Tensor] | None] = []
        self.previous_states = previous_states(start, states)

    def buffer(self, columns: int) -> StepBuffer:
        """Return an empty buffer that the sweep writes at every step."""
        return StepBuffer(self._start.new_empty(*self._states.shape[:-1], columns))

    def request_input_weight(self, weight: Tensor | None, d: StepBuffer) -> None:
        """Request ∂L/∂W_x, and its part of ∂L/∂x."""
        self._requests.append(None if weight is None else self._inputs.weight_gradient(weight, d))

    def request_bias(self, bias: Tensor | None, d: StepBuffer) -> None:
        """Request ∂L/∂b. Two sums take a fraction of the time of one sum over both axes."""
        self._request(bias, lambda: d.tensor.sum(-2).sum(0))

    def request_state_weight(self, weight: Tensor | None, d: StepBuffer) -> None:
        """Request ∂L/∂W_q, where q_t is the state before the step."""
        # The closure must not refer to self: the cycle would keep arrays until a collection.
        start, states = self._start, self._states

        def compute() -> Tensor:
            first = start.mT @ d.steps[0]
            if len(states) == 1:
                return first
            return first + product_over_steps(StepBuffer(states[:-1]), d)

        self._request(weight, compute)

    def request_weight(self, weight: Tensor | None, q: StepBuffer, d: StepBuffer) -> None:
        """Request ∂L/∂W_q, where the sweep writes q_t."""
        self._request(weight, lambda: product_over_steps(q, d))

    def compute(self) -> tuple[Tensor, list[Tensor | None]]:
        """Return the gradients of the inputs and of the weights, after the sweep."""
        x_gradient = self._inputs.gradient()
        return x_gradient, [request and request() for request in self._requests]

    def _request(self, weight: Tensor | None, compute: Callable[[], Tensor]) -> None:
        self._requests.append(None if weight is None else compute)
