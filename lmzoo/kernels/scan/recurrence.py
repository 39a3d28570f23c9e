"""The interface of a recurrence, and the choice between its kernels and its torch operations.

forward    h_t from h_{t-1}, for t = 0 .. T-1, into buffers
backward   ∂L/∂h_{t-1} from ∂L/∂h_t, for t = T-1 .. 0, and then the weights' gradients
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.cpu.inputs import kernel_inputs
from lmzoo.kernels.cpu.recurrence import CompiledRecurrence, Saved, Weights
from lmzoo.kernels.dispatch import has_kernels
from lmzoo.kernels.scan.gradients import Gradients, StepInputs

Inputs = Sequence[Tensor]
"""Copied vectors (T, *P, B, E); or, for kernels only, tokens (T, *P, B) and their table."""


class Recurrence(ABC):
    """One cell family: what one step computes, forward and backward.

    Subclasses are frozen dataclasses whose fields select a variant.
    """

    parts: ClassVar[int] = 1
    """Vectors of width H in a state: S = parts · H."""

    @abstractmethod
    def compiled(self) -> CompiledRecurrence:
        """Return the same recurrence as CPU kernels; import them here, since numba loads slowly."""

    @abstractmethod
    def saved_widths(self, width: int, weights: Weights) -> list[int]:
        """Return the widths of the tensors that the forward sweep saves; H = `width`."""

    @abstractmethod
    def forward(
        self,
        x: StepInputs,
        start: Float[Tensor, "*P B S"],
        weights: Weights,
        saved: Saved,
    ) -> None:
        """Write `saved`."""

    @abstractmethod
    def backward(
        self,
        upstream: Float[Tensor, "T *P B H"],
        start: Float[Tensor, "*P B S"],
        weights: Weights,
        saved: Saved,
        gradients: Gradients,
    ) -> Float[Tensor, "*P B S"]:
        """Request the weights' gradients in their order; return the gradient of the start."""


def compiled_for(recurrence: Recurrence, like: Tensor) -> CompiledRecurrence | None:
    """Return the recurrence's kernels if they accept tensors like this one."""
    if not has_kernels(like):
        return None
    from lmzoo.kernels.cpu import blas

    return recurrence.compiled() if blas.HAS_PRODUCTS else None


def sweep(
    recurrence: Recurrence, inputs: Inputs, start: Float[Tensor, "*P B S"], weights: Weights
) -> Saved:
    """Run the forward sweep; return the outputs (T, *P, B, H) and what else it saves."""
    kernels = compiled_for(recurrence, start)
    if kernels is not None:
        return kernels.forward(kernel_inputs(*inputs), start, weights)
    x = StepInputs(*inputs)
    widths = recurrence.saved_widths(start.shape[-1] // recurrence.parts, weights)
    saved = [start.new_empty(*x.shape, width) for width in widths]
    recurrence.forward(x, start, weights, saved)
    return saved


def sweep_backward(
    recurrence: Recurrence,
    upstream: Float[Tensor, "T *P B H"],
    inputs: Inputs,
    start: Float[Tensor, "*P B S"],
    weights: Weights,
    saved: Saved,
) -> tuple[Tensor, Tensor, Weights]:
    """Return the gradients of the inputs, the start and the weights (None where cut)."""
    kernels = compiled_for(recurrence, start)
    if kernels is not None:
        return kernels.backward(upstream, kernel_inputs(*inputs), start, weights, saved)
    gradients = Gradients(StepInputs(*inputs), start[..., : saved[0].shape[-1]], saved[0])
    start_gradient = recurrence.backward(upstream, start, weights, saved, gradients)
    x_gradient, weight_gradients = gradients.compute()
    return x_gradient, start_gradient, weight_gradients
