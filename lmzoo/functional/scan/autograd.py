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

from lmzoo.functional.members import Members
from lmzoo.functional.scan.sweep import Recurrence, Weights, sweep, sweep_back


def scan(
    recurrence: Recurrence,
    x: Float[Tensor, "T *P B E"],
    start: Float[Tensor, "*P B S"],
    weights: Weights,
) -> Float[Tensor, "T *P B H"]:
    """The outputs of all steps."""
    call = _Call(recurrence, tuple(weight is not None for weight in weights))
    given = [weight for weight in weights if weight is not None]
    return _Forward.apply(call, x, start, *given)[0]


def scan_batch_first(
    recurrence: Recurrence,
    x: Float[Tensor, "*P B T E"],
    start: Float[Tensor, "*P B S"],
    weights: Weights,
) -> Float[Tensor, "*P B T H"]:
    """The same for sequences that stand one after another, as models have them."""
    return scan(recurrence, x.movedim(-2, 0), start, weights).movedim(0, -2)


@dataclass(frozen=True)
class _Call:
    """What of a call is not a tensor: autograd functions see present weights only."""

    recurrence: Recurrence
    present: tuple[bool, ...]

    @property
    def count(self) -> int:
        return sum(self.present)

    def weights(self, given: Sequence[Tensor]) -> Weights:
        rest = iter(given)
        return [next(rest) if there else None for there in self.present]


class _Forward(torch.autograd.Function):
    """(call, x, start, *weights) -> (outputs, *kept)."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        x, start, *given = tensors
        return sweep(call.recurrence, x, start, call.weights(given))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call, _, *tensors = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        # output[1] is x as `sweep` has laid it out: what was given is free to go.
        ctx.save_for_backward(output[1], *tensors, output[0], *output[2:])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if upstream[0] is None:
            return (None,) * (3 + ctx.call.count)
        return None, *_Reverse.apply(ctx.call, upstream[0], *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *tensors = args
        axes = [1, 0] + [0] * call.count
        members = Members(info.batch_size, already=_logical(tensors[0], in_dims[1]) > 3)
        found = _Forward.apply(call, *members.join(tensors, in_dims[1:], axes))
        return members.split(found, [1] * len(found))


class _Reverse(torch.autograd.Function):
    """(call, upstream, x, start, *weights, *kept) -> gradients of x, start, *weights."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        upstream, x, start, *rest = tensors
        weights, kept = call.weights(rest[: call.count]), rest[call.count :]
        dx, dstart, found = sweep_back(call.recurrence, upstream, x, start, weights, kept)
        return dx, dstart, *(gradient for gradient in found if gradient is not None)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> None:
        raise NotImplementedError(
            "a fast scan has no second derivative; differentiate the cell's naive_scan instead"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        call, *tensors = args
        axes = [1, 1, 0] + [0] * call.count + [1] * (len(tensors) - 3 - call.count)
        members = Members(info.batch_size, already=_logical(tensors[1], in_dims[2]) > 3)
        found = _Reverse.apply(call, *members.join(tensors, in_dims[1:], axes))
        return members.split(found, [1, 0] + [0] * call.count)


def _logical(tensor: Tensor, dim: int | None) -> int:
    """Axes of a tensor, the mapped one not counted."""
    return tensor.dim() - (dim is not None)
