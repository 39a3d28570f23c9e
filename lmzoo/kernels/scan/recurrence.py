"""What a cell family gives: a forward sweep that keeps, a reverse sweep that reads.

forward   h_t from h_{t-1}, for t = 0 .. T-1, into buffers
reverse   ∂L/∂h_{t-1} from ∂L/∂h_t, for t = T-1 .. 0, and then the weights' gradients
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import has_kernels, has_products
from lmzoo.kernels.scan.gradients import Gradients
from lmzoo.kernels.scan.inputs import StepInputs
from lmzoo.kernels.scan.projections import Paths, paths

Inputs = Sequence[Tensor]
"""Vectors (T, *P, B, E), laid out; or, for compiled sweeps, words (T, *P, B) and their table."""

Weights = Sequence[Tensor | None]
"""A recurrence's weights in its own order; None where a path is cut."""

Kept = Sequence[Tensor]
"""What the forward sweep leaves for the reverse sweep, time first; [0] are the outputs."""


class Recurrence(ABC):
    """One cell family: what happens in a step, and what happens to the gradient there.

    Everything that is not a tensor is the recurrence's own (a frozen dataclass).
    """

    parts: ClassVar[int] = 1
    """Vectors of width H in a state: S = parts · H."""

    @abstractmethod
    def loops(self) -> "Loops":
        """The same, compiled whole."""

    @abstractmethod
    def columns(self, width: int, weights: Weights) -> list[int]:
        """The widths of what the forward sweep keeps; H = `width`."""

    @abstractmethod
    def forward(
        self,
        x: StepInputs,
        start: Float[Tensor, "*P B S"],
        weights: Weights,
        kept: Kept,
    ) -> None:
        """Fill `kept`."""

    @abstractmethod
    def reverse(
        self,
        upstream: Float[Tensor, "T *P B H"],
        start: Float[Tensor, "*P B S"],
        weights: Weights,
        kept: Kept,
        gradients: Gradients,
    ) -> Float[Tensor, "*P B S"]:
        """Ask `gradients` for those of the weights, in their order; that of the start."""


class Loops(ABC):
    """A recurrence whose sweeps are compiled whole."""

    @abstractmethod
    def forward(self, x: Paths, start: Float[Tensor, "*P B S"], weights: Weights) -> Kept:
        """The outputs (T, *P, B, H), and what else the reverse sweep reads."""

    @abstractmethod
    def reverse(
        self,
        upstream: Float[Tensor, "T *P B H"],
        x: Paths,
        start: Float[Tensor, "*P B S"],
        weights: Weights,
        kept: Kept,
    ) -> tuple[Tensor, Tensor, Weights]:
        """Gradients of the inputs, the start and the weights (None where cut)."""


def loops_for(recurrence: Recurrence, like: Tensor) -> Loops | None:
    """A recurrence's compiled sweeps, where they take tensors like this one."""
    return recurrence.loops() if has_kernels(like) and has_products() else None


def sweep(
    recurrence: Recurrence, inputs: Inputs, start: Float[Tensor, "*P B S"], weights: Weights
) -> Kept:
    """The outputs (T, *P, B, H), and what else the sweep keeps."""
    loops = loops_for(recurrence, start)
    if loops is not None:
        return loops.forward(paths(*inputs), start, weights)
    x = StepInputs(*inputs)
    columns = recurrence.columns(start.shape[-1] // recurrence.parts, weights)
    kept = [start.new_empty(*x.shape, g) for g in columns]
    recurrence.forward(x, start, weights, kept)
    return kept


def sweep_back(
    recurrence: Recurrence,
    upstream: Float[Tensor, "T *P B H"],
    inputs: Inputs,
    start: Float[Tensor, "*P B S"],
    weights: Weights,
    kept: Kept,
) -> tuple[Tensor, Tensor, Weights]:
    """Gradients of the inputs, the start and the weights (None where cut)."""
    loops = loops_for(recurrence, start)
    if loops is not None:
        return loops.reverse(upstream, paths(*inputs), start, weights, kept)
    gradients = Gradients(StepInputs(*inputs), start[..., : kept[0].shape[-1]], kept[0])
    dstart = recurrence.reverse(upstream, start, weights, kept, gradients)
    dx, found = gradients.found()
    return dx, dstart, found
