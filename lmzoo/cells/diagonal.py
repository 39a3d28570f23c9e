r"""Cells whose recurrence is elementwise.

    s_t = a_t ⊙ s_{t-1} + b_t        y_t = read(s_t, x_t)

If a_t and b_t depend on the inputs only, all positions are computed at once, as a scan of the pairs
(a_t, b_t) (`functional/linear_recurrence.py`). Otherwise the scan is a loop over `step`.

Martin & Cundy 2018 (arXiv:1709.04057).
"""

from abc import abstractmethod

from jaxtyping import Float, Num
from torch import Tensor

from lmzoo.cells.base import Cell, Inputs, OutputAndState, State
from lmzoo.functional.linear_recurrence import linear_recurrence

Elements = Num[Tensor, "*N H"]
"""One number for each unit, real or complex."""


class DiagonalCell(Cell):
    """A cell with an elementwise recurrence; its state is s, (B, H), real or complex."""

    zero_start = 1.0

    @abstractmethod
    def coefficients(
        self, projected: Float[Tensor, "*N G"], s: Elements | None
    ) -> tuple[Elements, Elements]:
        """Return a_t and b_t. `s` is s_{t-1}, or None if `reads_state` is false."""

    @property
    def reads_state(self) -> bool:
        """Whether a_t, b_t or y_t depend on s_{t-1}, so that there is no parallel form."""
        return False

    def read(
        self,
        s: Elements,
        projected: Float[Tensor, "*N G"],
        before: Elements | None,
    ) -> Float[Tensor, "*N H"]:
        """Return the output y_t; `before` is s_{t-1}, or None if `reads_state` is false."""
        return s

    def join(self, state: State) -> Elements:
        """Return s from the state's tensors."""
        return state[0]

    def split(self, s: Elements) -> State:
        """Return the state's tensors; the inverse of `join`."""
        return (s,)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        before = self.join(state)
        a, b = self.coefficients(projected, before)
        s = a * before + b
        y = self.read(s, projected, before)
        return y, self.split(s)

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState | None:
        # a and b of a step wait for the state of the step before: only the loop computes them.
        if self.reads_state:
            return None
        projected = self.project_inputs(x)
        a, b = self.coefficients(projected, None)
        s = linear_recurrence(a, b, self.join(state))
        y = self.read(s, projected, None)
        return y, self.split(s[:, -1])
