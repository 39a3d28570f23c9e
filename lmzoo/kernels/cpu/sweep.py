"""What the kernels of all recurrences share: arrays of tensors, and rows by token.

Kernels read and write arrays (T, P, B, H), time first, so that a step is one contiguous block. They
run one pack member at a time, so that what a step reads and writes stays in the cache.
"""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, ClassVar

import torch
from torch import Tensor

from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.dispatch import Kernel, as_arrays, run_kernel, token_error
from lmzoo.kernels.scan import Recurrence, Weights


class Sweep(Recurrence):
    """A recurrence whose forward and backward sweeps are one numba kernel each.

        forward(projected, tokens, starts, weights, settings, saved) -> False at an invalid token
        backward(g, tokens, starts, weights, settings, saved, gradients)

    The gradients of `projected` (P, V, G), the vectors of the start (P, B, H) and the weights are 0
    before the backward kernel, and it adds to them. A weight that is cut has no elements.
    """

    reads_tokens = True
    kernels: ClassVar[tuple[Kernel, Kernel]]
    vectors: ClassVar[int] = 1
    """Vectors of width H in the state."""
    writes: ClassVar[int] = 1
    """Vectors that the forward kernel writes at each step."""

    def settings(self) -> tuple[Any, ...]:
        """Return the arguments of both kernels that select the variant."""
        return astuple(self)  # type: ignore[call-overload]

    def widths(self, weights: Weights, width: int) -> Sequence[int]:
        """Return the widths of what the forward kernel writes at each step, from that of h."""
        del weights
        return [width] * self.writes

    def forward(
        self,
        projected: Tensor,
        tokens: Tensor | None,
        start: Tensor,
        weights: Weights,
    ) -> list[Tensor]:
        # Sweeps read tokens: `scan` makes each position of vectors a token of its own.
        assert tokens is not None
        members, rows, steps = tokens.shape
        widths = self.widths(weights, start.shape[-1] // self.vectors)
        # Time first: what the kernel writes at a step is one block of memory.
        saved = [start.new_empty(steps, members, rows, width) for width in widths]
        arguments = as_arrays([projected, tokens]) + self._arguments(start, weights)
        arguments += as_arrays(saved)
        if not run_kernel(self.kernels[0], arguments):
            # A kernel cannot raise; it has returned False at an invalid token.
            raise token_error(tokens, projected.shape[1])
        # Views: kernels write time first, all others read (P, B, T, H).
        return [tensor.movedim(0, 2) for tensor in saved]

    def backward(
        self,
        upstream: Tensor,
        tokens: Tensor | None,
        start: Tensor,
        weights: Weights,
        saved: Sequence[Tensor],
        rows: tuple[int, int],
    ) -> list[Tensor | None]:
        assert tokens is not None
        count, width = rows
        sums = start.new_zeros(len(start), count, width)
        starts = [part.new_zeros(part.shape) for part in start.chunk(self.vectors, -1)]
        gradients: list[Tensor | None] = []
        for weight in weights:
            gradient = None
            if weight is not None:
                gradient = weight.new_zeros(weight.shape)
            gradients.append(gradient)
        arguments = _time_first([upstream]) + as_arrays([tokens])
        arguments += self._arguments(start, weights) + _time_first(saved)
        # The kernel adds to these.
        arguments += as_arrays([sums]) + as_arrays(starts) + _optional(sums, gradients)
        run_kernel(self.kernels[1], arguments)
        return [sums, torch.cat(starts, -1)] + gradients

    def _arguments(self, start: Tensor, weights: Weights) -> list[Any]:
        """Return what both kernels read, in their order."""
        starts = as_arrays(start.chunk(self.vectors, -1))
        return starts + _optional(start, weights) + list(self.settings())


def _optional(like: Tensor, tensors: Sequence[Tensor | None]) -> list[Any]:
    """Return arrays, without elements in the place of a tensor that is cut."""
    # Kernels have no optional arguments: no elements say that a weight is cut.
    none = like.new_empty(0, 0, 0)
    present = []
    for tensor in tensors:
        if tensor is None:
            tensor = none
        present.append(tensor)
    return as_arrays(present)


def _time_first(tensors: Sequence[Tensor]) -> list[Any]:
    return as_arrays(tensor.movedim(2, 0) for tensor in tensors)


@compiled
def look_up(projected, tokens, t, first, out):
    """Write the rows of the tokens (B, T) at step t, from column `first`; False at an invalid one.

    `projected` is (V, G), `out` (B, H).
    """
    for b in range(len(out)):
        # Checked here, as an index outside would read other memory.
        v = tokens[b, t]
        if not 0 <= v < len(projected):
            return False
        out_ = out[b]
        row = projected[v, first:]
        for i in range(len(out_)):
            out_[i] = row[i]
    return True


@compiled
def add_rows(sums, tokens, t, first, d):
    """Add d (B, H) to the rows of the tokens at step t, from column `first`."""
    for b in range(len(d)):
        d_ = d[b]
        row = sums[tokens[b, t], first:]
        for i in range(len(d_)):
            row[i] += d_[i]
