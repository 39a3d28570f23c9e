r"""From the gradients of pre-activations to those of weights, biases and inputs.

    a_t = x_t W_x + q_t W_q + b          d_t = ∂L/∂a_t, found by the reverse sweep

    ∂L/∂W_x, ∂L/∂x  of the inputs (`inputs.py`)      ∂L/∂W_q = Σ_t q_tᵀ d_t      ∂L/∂b = Σ_t d_t

Every d_t is kept, and each weight gets its product when the sweep is done (`sums.py`).
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.scan.inputs import StepInputs
from lmzoo.kernels.scan.products import before
from lmzoo.kernels.scan.step_buffers import Steps, product_of_all


class Gradients:
    """What is asked for: the gradients of a sweep's weights in the order of the asking.

    That of a weight which is None is None.
    """

    def __init__(
        self,
        inputs: StepInputs,
        start: Float[Tensor, "*P B H"],
        states: Float[Tensor, "T *P B H"],
    ) -> None:
        self._inputs, self._start, self._states = inputs, start, states
        self._asked: list[Callable[[], Tensor] | None] = []
        self.before = before(start, states)
        """The state that each step starts from."""

    def steps(self, columns: int) -> Steps:
        """Room for something that the sweep writes at every step."""
        return Steps(self._start.new_empty(*self._states.shape[:-1], columns))

    def of_inputs(self, weight: Tensor | None, d: Steps) -> None:
        """W_x, and its share of ∂L/∂x."""
        self._asked.append(None if weight is None else self._inputs.of_weight(weight, d))

    def of_bias(self, bias: Tensor | None, d: Steps) -> None:
        """B. Over both axes at once takes several times as long."""
        self._ask(bias, lambda: d.every.sum(-2).sum(0))

    def of_states(self, weight: Tensor | None, d: Steps) -> None:
        """W_q where q_t is the state before the step."""
        # Not by way of self: it would hold what holds it, and arrays wait for the collector.
        start, states = self._start, self._states

        def total() -> Tensor:
            first = start.mT @ d.at[0]
            return first + product_of_all(Steps(states[:-1]), d) if len(states) > 1 else first

        self._ask(weight, total)

    def of(self, weight: Tensor | None, q: Steps, d: Steps) -> None:
        """W_q where the sweep writes q_t."""
        self._ask(weight, lambda: product_of_all(q, d))

    def found(self) -> tuple[Tensor, list[Tensor | None]]:
        """All steps are written: the gradient of the inputs, and those of the weights."""
        into = self._inputs.found()
        return into, [one and one() for one in self._asked]

    def _ask(self, weight: Tensor | None, total: Callable[[], Tensor]) -> None:
        self._asked.append(None if weight is None else total)
