"""How a hand-derived sweep enters autograd and `torch.func`.

`scan` runs a recurrence forward and, when gradients are asked for, its reverse sweep.
Both are autograd functions of their own, so that `vmap`, `grad` and their compositions
see them: mapped tensors become members, which the recurrence computes as one program.
Second derivatives are refused: no reverse sweep of the reverse sweep has been derived.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.members import Members
from lmzoo.kernels.scan.products import laid_out
from lmzoo.kernels.scan.recurrence import Inputs, Recurrence, Weights, loops_for, sweep, sweep_back
from lmzoo.kernels.scan.tokens import Words


def scan(
    recurrence: Recurrence,
    x: Float[Tensor, "T *P B E"] | Words,
    start: Float[Tensor, "*P B S"],
    weights: Weights,
) -> Float[Tensor, "T *P B H"]:
    """The outputs of all steps.

    Args:
        recurrence: what happens in a step.
        x: vectors, or for compiled sweeps words (T, *P, B) and their table (*P, V, E).
        start: the first state.
        weights: in the recurrence's order; None where cut.

    Raises:
        IndexError: a word has no row in the table.
    """
    inputs = (x.tokens, x.table) if isinstance(x, Words) else (x,)
    call = _Call(recurrence, len(inputs), tuple(weight is not None for weight in weights))
    given = [weight for weight in weights if weight is not None]
    return _Forward.apply(call, *inputs, start, *given)[0]


def scan_batch_first(
    recurrence: Recurrence,
    x: Float[Tensor, "*P B T E"] | Words,
    start: Float[Tensor, "*P B S"],
    weights: Weights,
) -> Float[Tensor, "*P B T H"]:
    """The same for sequences that stand one after another, as models have them."""
    if isinstance(x, Words) and loops_for(recurrence, x.table):
        time_first = Words(x.tokens.mT, x.table)
    else:
        time_first = (x.vectors() if isinstance(x, Words) else x).movedim(-2, 0)
    return scan(recurrence, time_first, start, weights).movedim(0, -2)


@dataclass(frozen=True)
class _Call:
    """What of a call is not a tensor: autograd functions see present weights only."""

    recurrence: Recurrence
    inputs: int
    """Tensors that the inputs are: vectors, or words and their table."""
    present: tuple[bool, ...]

    def read(self, tensors: Sequence[Tensor]) -> tuple[Inputs, Tensor, Weights, Sequence[Tensor]]:
        """(inputs laid out, start, weights, rest)."""
        laid, rest = tensors[: self.inputs], tensors[self.inputs + 1 :]
        count = sum(self.present)
        given = iter(rest[:count])
        weights = [next(given) if there else None for there in self.present]
        return laid, tensors[self.inputs], weights, rest[count:]

    @property
    def by_word(self) -> bool:
        return self.inputs == 2

    @property
    def axes(self) -> list[int]:
        """Where members stand in inputs, start and weights."""
        return [1, *[0] * (self.inputs - 1), 0, *[0] * sum(self.present)]

    def members(self, size: int, first: Tensor, dim: int | None) -> Members:
        """Those there are, given the first of the inputs."""
        logical = first.dim() - (dim is not None)
        return Members(size, already=logical > (2 if self.by_word else 3))


class _Forward(CustomFunction):
    """(call, *inputs, start, *weights) -> (outputs, first of the inputs laid out, *kept)."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        first, *rest = tensors
        in_order = loops_for(call.recurrence, rest[0]) is not None
        whole = torch.contiguous_format
        laid = first.clone(memory_format=whole) if in_order else laid_out(first)
        inputs, start, weights, _ = call.read((laid, *rest))
        states, *kept = sweep(call.recurrence, inputs, start, weights)
        return states, laid, *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call, _, *tensors = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        # output[1] is x or the words as they are laid out: what was given is free to go.
        ctx.save_for_backward(output[1], *tensors, output[0], *output[2:])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        call = ctx.call
        if upstream[0] is None:
            return (None,) * (1 + len(call.axes))
        found = _Reverse.apply(call, upstream[0], *ctx.saved_tensors)
        return (None,) * call.inputs + tuple(found)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *tensors = args
        members = call.members(info.batch_size, tensors[0], in_dims[1])
        found = _Forward.apply(call, *members.join(tensors, in_dims[1:], call.axes))
        return members.split(found, [1] * len(found))


class _Reverse(Backward):
    """(call, upstream, *inputs, start, *weights, *kept) -> gradients of inputs, start, *weights."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        upstream, *rest = tensors
        inputs, start, weights, kept = call.read(rest)
        dx, dstart, found = sweep_back(call.recurrence, upstream, inputs, start, weights, kept)
        return dx, dstart, *(gradient for gradient in found if gradient is not None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *tensors = args
        members = call.members(info.batch_size, tensors[1], in_dims[2])
        axes = [1, *call.axes]
        axes += [1] * (len(tensors) - len(axes))
        found = _Reverse.apply(call, *members.join(tensors, in_dims[1:], axes))
        return members.split(found, call.axes[call.inputs - 1 :])
