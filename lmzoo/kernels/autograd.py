"""Custom autograd functions, and how `vmap` over pack members becomes one call with a member axis.

`torch.func.vmap` calls a function's `vmap` rule with the mapped axis of every tensor. The rules
here move that axis to a fixed position, the member axis P, and call the function once for all
members. Under nested maps both axes become one.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor


class CustomFunction(torch.autograd.Function):
    """An autograd function of tensors and arguments that contain none; every result is a tensor.

    A function whose tensors all have the member axis first, or none has, defines `compute` in place
    of `forward` and `vmap`: it gets tensors with a member axis, and other arguments as they are.
    `axes` is the number of axes of the first tensor without members. A function that defines
    `forward` without `vmap` takes any number of leading axes, and members are one more.
    """

    axes: ClassVar[int]

    def __init_subclass__(cls) -> None:
        compute = cls.__dict__.get("compute")
        if compute is None:
            if "vmap" not in cls.__dict__:
                cls.vmap = staticmethod(functools.partial(_map_leading_axes, cls))
            return

        def forward(*args: Any) -> tuple[Tensor, ...]:
            if args[0].dim() > cls.axes:
                return tuple(compute(*args))
            whole = (arg[None] if isinstance(arg, Tensor) else arg for arg in args)
            return tuple(output[0] for output in compute(*whole))

        def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
            outputs = cls.apply(*_members_first(info.batch_size, in_dims, args, cls.axes))
            if args[0].dim() - (in_dims[0] is not None) > cls.axes:
                outputs = tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs)
            return outputs, (0,) * len(outputs)

        cls.forward, cls.vmap = staticmethod(forward), staticmethod(vmap)


def _map_leading_axes(cls: Any, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    outputs = cls.apply(*_members_first(info.batch_size, in_dims, args))
    return outputs, 0 if isinstance(outputs, Tensor) else (0,) * len(outputs)


def _members_first(
    size: int, in_dims: Sequence[int | None], args: Sequence[Any], axes: float = math.inf
) -> Iterator[Any]:
    """Yield the arguments with the mapped axis first; expand a tensor that is not mapped.

    If the first tensor has more than `axes` axes besides, the tensors have a member axis already.
    Both then become one.
    """
    nested = args[0].dim() - (in_dims[0] is not None) > axes
    for arg, dim in zip(args, in_dims, strict=True):
        if not isinstance(arg, Tensor):
            yield arg
            continue
        # movedim costs time, forward and backward, even if it moves nothing.
        first = arg.movedim(dim, 0) if dim else arg if dim == 0 else arg.expand(size, *arg.shape)
        yield first.flatten(0, 1) if nested else first


class Backward(CustomFunction):
    """The gradient of a custom function, itself a function so that `vmap` can map it."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "this custom gradient has no derivative; for second derivatives call the naive "
            "function instead, `naive_scan` in a cell"
        )
