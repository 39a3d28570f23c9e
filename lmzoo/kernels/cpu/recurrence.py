"""The interface of a recurrence whose forward and backward sweeps are numba kernels."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.cpu.inputs import KernelInputs

Weights = Sequence[Tensor | None]
"""A recurrence's weights in its own order; None where a path is cut."""

Saved = Sequence[Tensor]
"""What the forward sweep saves for the backward sweep, time first; [0] are the outputs."""


class Recurrence(ABC):
    """A recurrence: one kernel call per sweep, for all steps and pack members.

    Subclasses are frozen dataclasses whose fields select a variant. Their reference, forward and
    backward, is `naive_scan` of the cell with the same name.
    """

    @abstractmethod
    def forward(self, x: KernelInputs, start: Float[Tensor, "*P B S"], weights: Weights) -> Saved:
        """Return the outputs (T, *P, B, H), and what else the backward sweep reads."""

    @abstractmethod
    def backward(
        self,
        upstream: Float[Tensor, "T *P B H"],
        x: KernelInputs,
        start: Float[Tensor, "*P B S"],
        weights: Weights,
        saved: Saved,
    ) -> tuple[Tensor, Tensor, Weights]:
        """Return the gradients of inputs, initial state and weights (None where cut)."""
