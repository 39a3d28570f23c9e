r"""From the gradients of pre-activations to those of weights, biases and inputs.

    a_t = x_t W_x + q_t W_q + b          d_t = ∂L/∂a_t, found by the reverse sweep

    ∂L/∂W_x, ∂L/∂b, ∂L/∂x    of the inputs (`inputs.py`)        ∂L/∂W_q = Σ_t q_tᵀ d_t

Two ways to the same sums. Afterwards: every d_t is kept, and each weight gets its products,
one or one a step (`sums.py`), when the sweep is done. In step: a step's share is added while
d_t is in the cache, and the next step writes over it. `products.in_step` says which one pays.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.scan.inputs import StepInputs
from lmzoo.functional.scan.products import before
from lmzoo.functional.scan.sums import Afterwards, OfWeight, Steps, Sum, product_of_all


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
        self._asked: list[Sum | None] = []
        self.before = before(start, states)
        """The state that each step starts from."""

    def steps(self, columns: int) -> Steps:
        """Room for something that the sweep writes at every step."""
        count = len(self._states)
        shape = (1 if self._inputs.in_step else count, *self._start.shape[:-1], columns)
        return Steps(self._start.new_empty(shape), count)

    def of_inputs(self, weight: Tensor | None, d: Steps) -> None:
        """W_x, and its share of ∂L/∂x."""
        self._asked.append(None if weight is None else self._inputs.of_weight(weight, d))

    def of_bias(self, bias: Tensor | None, d: Steps) -> None:
        """B; after the inputs' weight with the same d."""
        self._asked.append(None if bias is None else self._inputs.of_bias(d))

    def of_states(self, weight: Tensor | None, d: Steps) -> None:
        """W_q where q_t is the state before the step."""
        # Not by way of self: it would hold what holds it, and arrays wait for the collector.
        start, states = self._start, self._states

        def afterwards() -> Tensor:
            total = start.mT @ d.at[0]
            if len(states) == 1:
                return total
            return total + product_of_all(Steps(states[:-1], len(states) - 1), d)

        self._weight(weight, lambda one: OfWeight(one, self.before, d), afterwards)

    def of(self, weight: Tensor | None, q: Steps, d: Steps) -> None:
        """W_q where the sweep writes q_t."""
        self._weight(weight, lambda one: OfWeight(one, q.at, d), lambda: product_of_all(q, d))

    def spend(self, t: int) -> None:
        """Step t is written."""
        if self._inputs.in_step:
            for one in self._asked:
                if one is not None:
                    one.spend(t)
            self._inputs.spend(t)

    def found(self) -> tuple[Tensor, list[Tensor | None]]:
        """All steps are written: the gradient of the inputs, and those of the weights."""
        into = self._inputs.found()
        return into, [one and one.total() for one in self._asked]

    def _weight(
        self,
        weight: Tensor | None,
        in_step: Callable[[Tensor], Sum],
        afterwards: Callable[[], Tensor],
    ) -> None:
        if weight is None:
            self._asked.append(None)
        else:
            in_time = self._inputs.in_step
            self._asked.append(in_step(weight) if in_time else Afterwards(afterwards))
