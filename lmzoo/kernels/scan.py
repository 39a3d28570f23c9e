"""Recurrences as custom autograd functions: one kernel call forward and one backward.

    T steps, B sequences, H units, G columns of the projected inputs, P pack members
    projected (*P, V, G),  tokens (*P, B, T),  start (*P, B, S),  weights (*P, _, _)

The inputs are projected outside, once for each of V rows: those of a table of tokens, or all
positions of vectors, V = B T. A kernel returns the gradient of these rows, and from it follow those
of the projection: for tokens that is less work than products over all positions.

The kernels of `cpu/<cell>.py` run where `dispatch.has_product_kernels` is true, those of
`gpu/<cell>.py` on a GPU. They equal the loop over a cell's `step` in outputs and gradients. Under
`torch.func.vmap` the mapped axis becomes P. Second derivatives raise an error: no kernel computes
them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.kernels.dispatch import Backward, CustomFunction, has_gpu_kernels, has_product_kernels
from lmzoo.kernels.tokens import TokenInputs, map_vectors, take_rows

Weights = Sequence[Tensor | None]
"""A recurrence's weights in its own order; None where a path is cut."""
Starts = Float[Tensor, "B S"]
"""Initial vectors of all layers, side by side."""


class Recurrence(ABC):
    """A recurrence on one kind of device. All tensors have a member axis.

    Subclasses are frozen dataclasses whose fields select a variant. Their reference, forward and
    backward, is `naive_scan` of the cell with the same name.
    """

    reads_tokens: ClassVar[bool]
    """Whether kernels look up the rows of tokens themselves."""

    @abstractmethod
    def forward(
        self,
        projected: Float[Tensor, "P V G"],
        tokens: Int[Tensor, "P B T"] | None,
        start: Float[Tensor, "P B S"],
        weights: Weights,
    ) -> list[Tensor]:
        """Return the outputs (P, B, T, H), and what else the backward kernel reads."""

    @abstractmethod
    def backward(
        self,
        upstream: Float[Tensor, "P B T H"],
        tokens: Int[Tensor, "P B T"] | None,
        start: Float[Tensor, "P B S"],
        weights: Weights,
        saved: Sequence[Tensor],
        rows: tuple[int, int],
    ) -> list[Tensor | None]:
        """Return the gradients of `projected`, of size `rows` = (V, G), of start and of weights."""

    def project(
        self,
        function: Callable[[Tensor], Tensor],
        x: Tensor | TokenInputs,
    ) -> Any:
        """Project inputs; vectors time first, as the kernels of CPUs read and write them."""
        # Time first: a step then reads rows that are adjacent.
        if self.reads_tokens and not isinstance(x, TokenInputs):
            return function(x.movedim(1, 0)).movedim(0, 1)
        return map_vectors(function, x)

    def copies(self, start: Tensor, weights: Weights) -> list[Tensor]:
        """Return start and the weights as kernels read them, if they do not read tokens."""
        raise NotImplementedError

    def fits(self, start: Starts) -> bool:
        """Return whether the kernels accept this width."""
        del start
        return True


def find_recurrence(
    name: str,
    start: Starts,
    *,
    on_gpu: bool = True,
    **options: Any,
) -> Recurrence | None:
    """Return the recurrence of `kernels/*/<name>.py` for the device, width and dtype of a state.

    None where there is none, or on a GPU without `on_gpu`.
    """
    if has_gpu_kernels(start):
        folder = "gpu"
        is_there = on_gpu
    else:
        folder = "cpu"
        is_there = has_product_kernels(start)
    if not is_there:
        return None
    # Imported by name: of a device that is not there, nothing is loaded.
    recurrence = import_module(f"lmzoo.kernels.{folder}.{name}").Scan(**options)
    # The weights of a wide recurrence do not fit on the chip of a GPU.
    if recurrence.fits(start):
        return recurrence
    return None


def scan(
    recurrence: Recurrence,
    x: Float[Tensor, "B T G"] | TokenInputs,
    start: Starts,
    weights: Weights,
) -> list[Tensor]:
    """Return the outputs (B, T, H) of all steps from projected inputs, and what a kernel saves.

    A table has projected rows. What is saved has no gradient; of an LSTM the last is c, (B, T, _).

    Raises:
        IndexError: a token id is outside the table (on a CPU).
    """
    tokens = None
    if recurrence.reads_tokens and isinstance(x, TokenInputs):
        rows = x.table
        tokens = x.tokens
    else:
        if isinstance(x, TokenInputs):
            # The kernels of GPUs read a row for each position.
            steps = take_rows(x.table, x.tokens)
        else:
            steps = x
        if recurrence.reads_tokens:
            steps = steps.movedim(1, 0)
        rows = steps.flatten(0, 1)
        if recurrence.reads_tokens:
            # Each position is a token of its own: row t B + b, transposed to (B, T).
            numbers = torch.arange(len(rows), device=rows.device)
            tokens = numbers.view(steps.shape[:2]).mT
    if not recurrence.reads_tokens:
        copies = recurrence.copies(start, weights)
        start = copies[0]
        weights = copies[1:]
    # Custom functions take tensors only: `kept` says which weights are None.
    kept = tuple(weight is not None for weight in weights)
    present = [weight for weight in weights if weight is not None]
    return list(_Scan.apply(rows, tokens, start, recurrence, kept, *present))


def _all(kept: tuple[bool, ...], present: Sequence[Tensor]) -> Weights:
    given = iter(present)
    weights = []
    for is_kept in kept:
        if is_kept:
            weights.append(next(given))
        else:
            weights.append(None)
    return weights


class _Scan(CustomFunction):
    """(projected, tokens, start, recurrence, kept, *weights) -> (outputs, *saved)."""

    axes = 2

    @staticmethod
    def compute(
        projected: Tensor,
        tokens: Tensor | None,
        start: Tensor,
        recurrence: Recurrence,
        kept: tuple[bool, ...],
        *weights: Tensor,
    ) -> list[Tensor]:
        return recurrence.forward(projected, tokens, start, _all(kept, weights))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any):
        projected, tokens, start, ctx.recurrence, ctx.kept = inputs[:5]
        weights = inputs[5:]
        # Backward needs the size of `projected`, not its numbers.
        ctx.rows = tuple(projected.shape[-2:])
        # What a kernel saves is no result of the recurrence.
        ctx.mark_non_differentiable(*output[1:])
        # None, not zeros, says that nothing reads the outputs.
        ctx.set_materialize_grads(False)
        tensors = (tokens, start) + weights + output
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(
        ctx: Any,
        *upstream: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        if upstream[0] is None:
            # Nothing reads the outputs: there is no gradient.
            return (None,) * (5 + sum(ctx.kept))
        arguments = (upstream[0], ctx.recurrence, ctx.kept, ctx.rows) + ctx.saved_tensors
        gradients = _ScanBackward.apply(*arguments)
        rows, start = gradients[:2]
        return (rows, None, start, None, None) + gradients[2:]


class _ScanBackward(Backward):
    """(g, recurrence, kept, rows, tokens, start, *weights, *saved) -> the gradients."""

    axes = 3

    @staticmethod
    def compute(
        upstream: Tensor,
        recurrence: Recurrence,
        kept: tuple[bool, ...],
        rows: tuple[int, int],
        tokens: Tensor | None,
        start: Tensor,
        *rest: Tensor,
    ) -> list[Tensor]:
        weights = _all(kept, rest)
        # The weights come first; what forward saved follows.
        saved = rest[sum(kept) :]
        gradients = recurrence.backward(upstream, tokens, start, weights, saved, rows)
        # Every result of a custom function is a tensor; a weight that is cut has no gradient.
        return [gradient for gradient in gradients if gradient is not None]
