"""Recurrences as custom autograd functions, one kernel call per sweep over time.

The kernels of `kernels/cpu/<cell>.py` run where `dispatch.has_product_kernels` is true. They equal
the loop over a cell's `step` in outputs and gradients.

    T steps, B sequences, E inputs, H units, G columns of a weight
    x (T, *P, B, E),  start (*P, B, S),  weights (*P, E, G),  biases (*P, G)

Time is the first axis, so that a step is one contiguous block. P is the pack member, an optional
axis before B: under `torch.func.vmap` the mapped axis becomes the member axis of one sweep. The
forward and the backward sweep are autograd functions of their own, so that `torch.func` can map
and differentiate them. Second derivatives raise an error: no sweep computes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction, MemberAxis
from lmzoo.kernels.cpu.inputs import kernel_inputs
from lmzoo.kernels.cpu.recurrence import Recurrence, Weights
from lmzoo.kernels.tokens import TokenInputs

Inputs = Sequence[Tensor]
"""Vectors (T, *P, B, E) in C order; or tokens (T, *P, B) and their table (*P, V, E)."""


def scan(
    recurrence: Recurrence,
    x: Float[Tensor, "T *P B E"] | TokenInputs,
    start: Float[Tensor, "*P B S"],
    weights: Weights,
) -> Float[Tensor, "T *P B H"]:
    """Run a recurrence over time-first inputs.

    Args:
        recurrence: the recurrence and its variant.
        x: vectors; or tokens (T, *P, B) and their table (*P, V, E).
        start: the initial state.
        weights: the weights in the recurrence's order, None where cut.

    Returns:
        The outputs of all steps.

    Raises:
        IndexError: a token id is outside the table.
    """
    return _apply(recurrence, x, start, weights)[0]


def scan_batch_first(
    recurrence: Recurrence,
    x: Float[Tensor, "*P B T E"] | TokenInputs,
    start: Float[Tensor, "*P B S"],
    weights: Weights,
) -> Float[Tensor, "*P B T H"]:
    """Run a recurrence over batch-first inputs, with the arguments of `scan`."""
    return scan(recurrence, _time_first(x), start, weights).movedim(0, -2)


def scan_with_memory(
    recurrence: Recurrence,
    x: Float[Tensor, "*P B T E"] | TokenInputs,
    start: Float[Tensor, "*P B S"],
    weights: Weights,
) -> tuple[Float[Tensor, "*P B T H"], Float[Tensor, "*P B _"]]:
    """Return the outputs of `scan_batch_first`, and the last step of the last saved tensor.

    For an LSTM this is c after the last step, that of `start` without one. It has no gradient.
    """
    outputs, *saved = _apply(recurrence, _time_first(x), start, weights)
    steps = saved[-1]
    return outputs.movedim(0, -2), steps[-1] if len(steps) else start[..., -steps.shape[-1] :]


def _time_first(x: Tensor | TokenInputs) -> Tensor | TokenInputs:
    return TokenInputs(x.tokens.mT, x.table) if isinstance(x, TokenInputs) else x.movedim(-2, 0)


def _apply(
    recurrence: Recurrence, x: Tensor | TokenInputs, start: Tensor, weights: Weights
) -> tuple[Tensor, ...]:
    inputs = (x.tokens, x.table) if isinstance(x, TokenInputs) else (x,)
    call = _Call(recurrence, len(inputs), tuple(weight is not None for weight in weights))
    present = [weight for weight in weights if weight is not None]
    return _Scan.apply(call, *inputs, start, *present)


@dataclass(frozen=True)
class _Call:
    """The arguments of a call that are not tensors, and how to read the tensors."""

    recurrence: Recurrence
    inputs: int
    """Number of input tensors: 1 for vectors, 2 for tokens and their table."""
    present: tuple[bool, ...]
    """Whether each weight is among the tensors; a cut weight is not."""

    def read(self, tensors: Sequence[Tensor]) -> tuple[Inputs, Tensor, Weights, Sequence[Tensor]]:
        """Split tensors into (inputs, start, weights, rest)."""
        inputs, rest = tensors[: self.inputs], tensors[self.inputs + 1 :]
        count = sum(self.present)
        present = iter(rest[:count])
        weights = [next(present) if is_present else None for is_present in self.present]
        return inputs, tensors[self.inputs], weights, rest[count:]

    @property
    def axes(self) -> list[int]:
        """The member axis of each of inputs, start and weights."""
        return [1, *[0] * (self.inputs - 1), 0, *[0] * sum(self.present)]

    def members(self, size: int, first: Tensor, dim: int | None) -> MemberAxis:
        """Return the member axis of a mapped call, given its first input."""
        axes = first.dim() - (dim is not None)
        return MemberAxis(size, nested=axes > (2 if self.inputs == 2 else 3))


class _Scan(CustomFunction):
    """(call, *inputs, start, *weights) -> (outputs, copy of the first input, *saved)."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        first, *rest = tensors
        copy = first.clone(memory_format=torch.contiguous_format)
        inputs, start, weights, _ = call.read((copy, *rest))
        states, *saved = call.recurrence.forward(kernel_inputs(*inputs), start, weights)
        return states, copy, *saved

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call, _, *tensors = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        # Save the copy, output[1], so that the memory of the original input can be freed.
        ctx.save_for_backward(output[1], *tensors, output[0], *output[2:])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        call = ctx.call
        if upstream[0] is None:
            return (None,) * (1 + len(call.axes))
        gradients = _ScanBackward.apply(call, upstream[0], *ctx.saved_tensors)
        return (None,) * call.inputs + tuple(gradients)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *tensors = args
        members = call.members(info.batch_size, tensors[0], in_dims[1])
        outputs = _Scan.apply(call, *members.merge(tensors, in_dims[1:], call.axes))
        return members.split(outputs, [1] * len(outputs))


class _ScanBackward(Backward):
    """(call, upstream, *inputs, start, *weights, *saved) -> gradients of inputs, start, weights."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        upstream, *rest = tensors
        inputs, start, weights, saved = call.read(rest)
        dx, dstart, gradients = call.recurrence.backward(
            upstream, kernel_inputs(*inputs), start, weights, saved
        )
        return dx, dstart, *(gradient for gradient in gradients if gradient is not None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *tensors = args
        members = call.members(info.batch_size, tensors[1], in_dims[2])
        axes = [1, *call.axes]
        axes += [1] * (len(tensors) - len(axes))
        gradients = _ScanBackward.apply(call, *members.merge(tensors, in_dims[1:], axes))
        return members.split(gradients, call.axes[call.inputs - 1 :])
