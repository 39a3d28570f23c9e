"""A recurrence on a GPU as a custom autograd function: one launch forward and one backward.

    T steps, B sequences, H units, G columns of the projected inputs, P pack members
    projected (*P, B, T, G),  start (*P, B, S),  weights (*P, H, H)

The inputs are projected outside, by one product over all positions, and so are the gradients of the
recurrent weights after the backward kernel. Under `torch.func.vmap` the mapped axis becomes P.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.affine import sum_outer
from lmzoo.kernels.autograd import Backward, CustomFunction, MemberAxis, call_with_members
from lmzoo.kernels.gpu.launch import launch
from lmzoo.kernels.precision import WIDEST, Precision, current_precision

ROWS = 16
"""Sequences of one program; the least number of rows of a product on tensor cores."""
SHARED_BYTES = {"tf32x3": (8, 256, 128), "tf32": (4, 320, 0), "bf16": (2, 320, 0)}
"""Precision -> shared memory in bytes: of one number of a weight, of one column of a weight, and of
one column of the rest. An upper bound of what compiled kernels need."""


@dataclass(frozen=True, kw_only=True)
class GpuRecurrence(ABC):
    """A recurrence: how its kernels are launched. Subclasses are frozen dataclasses.

    All tensors have a member axis and are contiguous. One kernel computes all steps, with the
    weights on the chip. Where they do not fit, the cell is a loop over `step`.
    """

    num_weights: ClassVar[int]
    """Recurrent weights (H, H) of the recurrence without cuts."""
    vectors: ClassVar[int] = 1
    """Vectors of width H in the state."""
    precision: str = field(default_factory=lambda: str(current_precision()))
    """How the kernels multiply (`kernels/precision.py`)."""

    @abstractmethod
    def forward(self, projected: Tensor, start: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs (P, B, T, H), and what else the backward kernel reads."""

    @abstractmethod
    def backward(
        self, upstream: Tensor, start: Tensor, weights: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the gradients of the projected inputs, of start, and of each weight."""

    def fits(self, start: Tensor) -> bool:
        """Return whether the weights stay on the chip."""
        width = start.shape[-1] // self.vectors
        if width > WIDEST[Precision(self.precision)]:
            return False
        needed = shared_memory(width, self.num_weights, self.precision)
        return start.device.type == "cpu" or needed <= memory_of_program(start.device)

    def launch(self, kernel: Any, states: Tensor, *tensors: Tensor, flags: Sequence[Any]) -> None:
        """Launch a kernel of all steps, for states of this shape (P, B, T, H)."""
        members, rows, steps, width = states.shape
        sizes = rows, steps, width, padded(width), ROWS
        grid = -(-rows // ROWS), members
        launch(kernel, grid, *tensors, *sizes, *flags, self.precision, num_warps=warps(width))


def gpu_scan(
    recurrence: GpuRecurrence,
    projected: Float[Tensor, "*P B T G"],
    start: Float[Tensor, "*P B S"],
    weights: Sequence[Float[Tensor, "*P _ _"]],
) -> Float[Tensor, "*P B T H"]:
    """Return the outputs of all steps. `weights` has those weights only that are not cut."""
    return _GpuScan.apply(recurrence, projected, start, *weights)[0]


def gpu_scan_with_memory(
    recurrence: GpuRecurrence,
    projected: Float[Tensor, "*P B T G"],
    start: Float[Tensor, "*P B S"],
    weights: Sequence[Float[Tensor, "*P _ _"]],
) -> tuple[Float[Tensor, "*P B T H"], Float[Tensor, "*P B H"]]:
    """Return the outputs of all steps, and the last step of the last saved tensor, detached."""
    saved = _GpuScan.apply(recurrence, projected, start, *weights)[: -1 - len(weights)]
    return saved[0], saved[-1][..., -1, :]


@functools.cache
def memory_of_program(device: torch.device) -> int:
    """Return the shared memory in bytes that one program may use on this GPU."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def padded(width: int) -> int:
    """Return the columns of a program: a power of two, at least 16."""
    return max(16, 2 ** math.ceil(math.log2(width)))


def warps(width: int) -> int:
    """Return the warps of a program, so many that its registers are enough."""
    return max(4, padded(width) // 8)


def shared_memory(width: int, weights: int, precision: str) -> int:
    """Return the shared memory in bytes that a recurrence with its weights on the chip needs."""
    number, column, rest = SHARED_BYTES[precision]
    columns = padded(width)
    return columns * (weights * (number * columns + column) + rest)


def states_before(start: Float[Tensor, "P B H"], states: Float[Tensor, "P B T H"]) -> Tensor:
    """Return h_{t-1} of every step."""
    return torch.cat([start[:, :, None], states[:, :, :-1]], dim=2)


def weight_gradient(inputs: Float[Tensor, "P B T H"], deltas: Float[Tensor, "P B T G"]) -> Tensor:
    """Return the gradient (P, H, G) of a weight: a product over all steps and sequences."""
    return sum_outer(inputs.flatten(1, 2), deltas.flatten(1, 2))


class _GpuScan(CustomFunction):
    """(recurrence, projected, start, *weights) -> (outputs, *saved, *copies).

    The copies are those of start and the weights, empty if the tensor is contiguous; backward reads
    them again.
    """

    @staticmethod
    def forward(recurrence: GpuRecurrence, *tensors: Tensor) -> tuple[Tensor, ...]:
        def compute(projected: Tensor, start: Tensor, *weights: Tensor) -> list[Tensor]:
            return recurrence.forward(projected, start, weights)

        whole = [t.contiguous() for t in tensors]
        copies = [
            tensor.new_empty(*tensor.shape[:-1], 0) if copy is tensor else copy
            for tensor, copy in zip(tensors[1:], whole[1:], strict=True)
        ]
        return *call_with_members(compute, whole, axes=3), *copies

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.recurrence, _, *tensors = inputs
        ctx.weights = len(tensors) - 1
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        saved, copies = output[: -len(tensors)], output[-len(tensors) :]
        pairs = zip(tensors, copies, strict=True)
        kept = [copy if copy.numel() else tensor for tensor, copy in pairs]
        ctx.save_for_backward(*kept, *saved)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if upstream[0] is None:
            return (None,) * (3 + ctx.weights)
        tensors = ctx.saved_tensors
        return None, *_GpuScanBackward.apply(ctx.recurrence, ctx.weights, upstream[0], *tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        recurrence, *tensors = args
        members = _members(info.batch_size, tensors[0], in_dims[1])
        merged = members.merge(tensors, in_dims[1:], [0] * len(tensors))
        outputs = _GpuScan.apply(recurrence, *merged)
        return members.split(outputs, [0] * len(outputs))


class _GpuScanBackward(Backward):
    @staticmethod
    def forward(recurrence: GpuRecurrence, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        def compute(upstream: Tensor, start: Tensor, *rest: Tensor) -> list[Tensor]:
            return recurrence.backward(upstream, start, rest[:count], rest[count:])

        return call_with_members(compute, [t.contiguous() for t in tensors], axes=3)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        recurrence, count, *tensors = args
        members = _members(info.batch_size, tensors[0], in_dims[2])
        merged = members.merge(tensors, in_dims[2:], [0] * len(tensors))
        gradients = _GpuScanBackward.apply(recurrence, count, *merged)
        return members.split(gradients, [0] * len(gradients))


def _members(size: int, first: Tensor, dim: int | None) -> MemberAxis:
    return MemberAxis(size, nested=first.dim() - (dim is not None) > 3)
