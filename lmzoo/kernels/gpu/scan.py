"""A recurrence on a GPU: one launch for all steps forward and one backward.

    h_t, c_t, saved_t = step(a_t, h_{t-1}, c_{t-1}, weights)
    a_t      blocks of H columns of the projected inputs, as many as the weight has
    c_t      a second vector of the state, in long short-term memory; it is the last of saved_t

A program computes `ROWS` sequences of one pack member; the weights stay on the chip. A cell is a
step and its gradient, which Triton inlines. The inputs are projected outside, by one product over
all positions, and so are the gradients of the weights after the backward kernel.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.affine import sum_outer
from lmzoo.kernels.device import WIDEST, Precision, current_precision
from lmzoo.kernels.gpu.blocks import load, load_weights, program_int64, tile
from lmzoo.kernels.gpu.launch import launch
from lmzoo.kernels.scan import Recurrence, Weights

ROWS = 16
"""Sequences of one program; the least number of rows of a product on tensor cores."""
SHARED_BYTES = {
    "tf32x3": (8, 256, 128),
    "tf32": (4, 320, 0),
    "bf16": (2, 320, 0),
}
"""Precision -> shared memory in bytes: of one number of a weight, of one column of a weight, and of
one column of the rest. An upper bound of what compiled kernels need."""


@dataclass(frozen=True, kw_only=True)
class GpuRecurrence(Recurrence):
    """A recurrence of one weight (H, W H), and possibly a bias (1, H).

    The kernels read W blocks (H, H), one after another.
    """

    # `kernels/tokens.py` takes the rows of tokens before; its gradient adds in a fixed order.
    reads_tokens = False
    steps: ClassVar[tuple[Any, Any]]
    """The functions of a step forward and backward."""
    blocks: ClassVar[Any]
    """W."""
    saved: ClassVar[Any]
    """Vectors of a step that the backward kernel reads, besides h."""
    vectors: ClassVar[int] = 1
    """Vectors of width H in the state."""
    operands: ClassVar[int] = 0
    """Vectors of a step that the backward kernel writes, which were multiplied by the weight."""
    biased: ClassVar[bool] = False
    precision: str = field(default_factory=lambda: str(current_precision()))
    """How the kernels multiply (`kernels/device.py`)."""

    @property
    def flags(self) -> tuple[Any, ...]:
        """What selects the variant of a step: all fields but the precision."""
        return tuple(getattr(self, own.name) for own in fields(self) if own.name != "precision")

    def fits(self, start: Tensor) -> bool:
        width = start.shape[-1] // self.vectors
        # A wider weight does not stay on the chip: registers would spill.
        if width > WIDEST[Precision(self.precision)]:
            return False
        needed = shared_memory(width, self.blocks, self.precision)
        if start.device.type == "cpu":
            return True  # Triton's interpreter
        return needed <= memory_of_program(start.device)

    def copies(self, start: Tensor, weights: Weights) -> list[Tensor]:
        """Return contiguous copies, which the forward and the backward kernel read."""
        present = [weight for weight in weights if weight is not None]
        bias = present[1:]
        read = [start, self.in_blocks(present[0])] + bias
        return [tensor.clone(memory_format=torch.contiguous_format) for tensor in read]

    def in_blocks(self, weight: Float[Tensor, "*P H G"]) -> Float[Tensor, "*P W H H"]:
        """Return a view of a weight as blocks."""
        return weight.unflatten(-1, (self.blocks, -1)).movedim(-2, -3)

    def forward(
        self,
        projected: Tensor,
        tokens: Tensor | None,
        start: Tensor,
        weights: Weights,
    ) -> list[Tensor]:
        del tokens
        members, rows, size = start.shape
        # `projected` has a row for every position, B T of them.
        lead = (members, rows, projected.shape[1] // rows)
        width = size // self.vectors
        states = projected.new_empty(lead + (width,))
        saved = projected.new_empty(lead + (self.saved * width,))
        # Not read where a recurrence has no bias.
        bias = start
        if self.biased:
            bias = weights[-1]
        tensors = [projected, weights[0], bias, start, states, saved]
        self._launch(_forward, states, tensors)
        return [states, saved]

    def backward(
        self,
        upstream: Tensor,
        tokens: Tensor | None,
        start: Tensor,
        weights: Weights,
        saved: Sequence[Tensor],
        rows: tuple[int, int],
    ) -> list[Tensor | None]:
        del tokens, rows
        states, kept = saved
        width = states.shape[-1]
        lead = states.shape[:-1]
        deltas = states.new_empty(lead + (self.blocks * width,))
        operands = states.new_empty(lead + (self.operands * width,))
        dstart = torch.empty_like(start)
        read = [upstream, weights[0], start, states, kept]
        written = [deltas, operands, dstart]
        self._launch(_backward, states, read + written)
        # The rows of `projected` are positions.
        gradients: list[Tensor | None] = [deltas.flatten(1, 2), dstart]
        gradients += self.weight_gradients(start, states, kept, deltas, operands)
        return gradients

    def weight_gradients(
        self,
        start: Tensor,
        states: Tensor,
        saved: Tensor,
        deltas: Tensor,
        operands: Tensor,
    ) -> list[Tensor]:
        """Return the gradients of the blocks and of the bias."""
        del saved, operands
        gradient = weight_gradient(states_before(start, states), deltas)
        return [self.in_blocks(gradient)]

    def constants(self, direction: int, width: int) -> dict[str, Any]:
        """Return the constants of the forward (0) or the backward kernel (1) at this width."""
        both = {
            "STEP": self.steps[direction],
            "COLUMNS": padded(width),
            "ROWS": ROWS,
            "BLOCKS": self.blocks,
            "SAVED": self.saved,
            "VECTORS": self.vectors,
            "FLAGS": self.flags,
            "PRECISION": self.precision,
        }
        if direction == 0:
            return {**both, "BIASED": self.biased}
        # Three loads ahead are the default. With two, registers are enough where operands are
        # stored at widths 32 and 128, and the shared memory of the MGRU is that of one weight.
        stages = 3
        if self.operands and (padded(width) != 64 or self.blocks == 1):
            stages = 2
        return {**both, "OPERANDS": self.operands, "STAGES": stages}

    def _launch(self, kernel: Any, states: Tensor, tensors: Weights):
        """Launch a kernel of all steps, for states of this shape (P, B, T, H)."""
        members, rows, steps, width = states.shape
        grid = (-(-rows // ROWS), members)
        direction = 1
        if kernel is _forward:
            direction = 0
        options = self.constants(direction, width)
        options["num_warps"] = warps(width)
        arguments = []
        for tensor in tensors:
            assert tensor is not None
            arguments.append(tensor.contiguous())
        launch(kernel, grid, arguments + [rows, steps, width], **options)


# Asked at every scan, and always the same.
@functools.cache
def memory_of_program(device: torch.device) -> int:
    """Return the shared memory in bytes that one program may use on this GPU."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def padded(width: int) -> int:
    """Return the columns of a program: a power of two, at least 16."""
    # A range in Triton is a power of two, and tensor cores multiply at least 16 columns.
    return max(16, 2 ** math.ceil(math.log2(width)))


def warps(width: int) -> int:
    """Return the warps of a program, so many that its registers are enough."""
    return max(4, padded(width) // 8)


def shared_memory(width: int, weights: int, precision: str) -> int:
    """Return the shared memory in bytes that a recurrence with its weights on the chip needs."""
    number, column, rest = SHARED_BYTES[precision]
    columns = padded(width)
    return columns * (weights * (number * columns + column) + rest)


def states_before(
    start: Float[Tensor, "P B S"],
    states: Float[Tensor, "P B T H"],
) -> Tensor:
    """Return h_{t-1} of every step."""
    # The start of an LSTM is (h, c): h comes first.
    first = start[:, :, None, : states.shape[-1]]
    return torch.cat([first, states[:, :, :-1]], 2)


def weight_gradient(
    inputs: Float[Tensor, "P B T H"],
    deltas: Float[Tensor, "P B T G"],
) -> Tensor:
    """Return the gradient (P, H, G) of a weight: a product over all steps and sequences."""
    return sum_outer(inputs.flatten(1, 2), deltas.flatten(1, 2))


# The loop over time is inside the kernel, so that the weights stay on the chip.
@triton.jit
@no_type_check
def _forward(
    projected,
    weight,
    bias,
    start,
    states,
    saved,
    B,
    T,
    H,
    STEP: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SAVED: tl.constexpr,
    VECTORS: tl.constexpr,
    FLAGS: tl.constexpr,
    PRECISION: tl.constexpr,
    BIASED: tl.constexpr,
):
    p = program_int64(1)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    weights = load_weights(weight, p, H, BLOCKS, COLUMNS, False, PRECISION)
    b = tl.zeros((1, COLUMNS), tl.float32)
    if BIASED:
        b = load(bias + p * H + i, i < H)
    h = load(start + at_row * VECTORS * H + i, ok)
    c = tl.zeros((ROWS, COLUMNS), tl.float32)
    if VECTORS == 2:
        c = load(start + at_row * VECTORS * H + H + i, ok)
    for t in range(T):
        step = (at_row * T + t) * H
        a = projected, step * BLOCKS + i, H, ok
        h, c, new = STEP(a, h, c, weights, b, FLAGS, PRECISION)
        tl.store(states + (step + i), h, ok)
        # Unrolled: an element of a tuple needs a constant index.
        for k in tl.static_range(SAVED):
            tl.store(saved + (step * SAVED + i) + k * H, new[k], ok)


@triton.jit
@no_type_check
def _backward(
    upstream,
    weight,
    start,
    states,
    saved,
    deltas,
    operands,
    dstart,
    B,
    T,
    H,
    STEP: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SAVED: tl.constexpr,
    VECTORS: tl.constexpr,
    FLAGS: tl.constexpr,
    PRECISION: tl.constexpr,
    OPERANDS: tl.constexpr,
    STAGES: tl.constexpr,
):
    p = program_int64(1)
    i, at_row, ok = tile(p, B, H, COLUMNS, ROWS)
    weights = load_weights(weight, p, H, BLOCKS, COLUMNS, True, PRECISION)
    h_0 = load(start + at_row * VECTORS * H + i, ok)
    c_0 = tl.zeros((ROWS, COLUMNS), tl.float32)
    if VECTORS == 2:
        c_0 = load(start + at_row * VECTORS * H + H + i, ok)
    carried = tl.zeros((ROWS, COLUMNS), tl.float32)
    gamma = tl.zeros((ROWS, COLUMNS), tl.float32)
    for back in tl.range(0, T, num_stages=STAGES):
        t = T - 1 - back
        step = (at_row * T + t) * H
        at = step + i
        delta = load(upstream + at, ok) + carried
        y = load(states + at, ok)
        # The stored states begin after the first step: before it is the start.
        h = load(states + at - H, ok & (t > 0))
        h = tl.where(t > 0, h, h_0)
        new = saved, step * SAVED + i, H, ok
        c = c_0
        if VECTORS == 2:
            c = load(saved + (step * SAVED + i) - H, ok & (t > 0))
            c = tl.where(t > 0, c, c_0)
        state = h, y, c
        carried, gamma, d, q = STEP(delta, gamma, state, new, weights, FLAGS, PRECISION)
        for k in tl.static_range(BLOCKS):
            tl.store(deltas + (step * BLOCKS + i) + k * H, d[k], ok)
        for k in tl.static_range(OPERANDS):
            tl.store(operands + (step * OPERANDS + i) + k * H, q[k], ok)
    tl.store(dstart + at_row * VECTORS * H + i, carried, ok)
    if VECTORS == 2:
        tl.store(dstart + at_row * VECTORS * H + H + i, gamma, ok)
