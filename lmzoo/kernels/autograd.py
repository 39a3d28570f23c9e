"""Custom autograd functions, and how `vmap` over pack members becomes one call with a member axis.

`torch.func.vmap` calls a function's `vmap` rule with the mapped axis of every tensor. The rules
here move that axis to a fixed position, the member axis P, and call the function once for all
members. Under nested maps both axes become one.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._functorch.autograd_function import VmapInfo
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter
from torch._functorch.utils import unwrap_dead_wrappers


class CustomFunction(torch.autograd.Function):
    """An autograd function whose call under `vmap` costs less than torch's.

    torch flattens every argument and result as a tree and binds arguments to the signature of
    `forward`; for a few small pack members that takes longer than the computation. Here every
    argument is a tensor or contains none, and every result is a tensor. Other transforms, such as
    `grad`, run as in torch. `apply` uses private names of torch; if they change, delete it: the
    results stay the same, only slower.

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
            return call_with_members(compute, args, cls.axes)

        def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
            nested = args[0].dim() - (in_dims[0] is not None) > cls.axes
            members = MemberAxis(info.batch_size, nested=nested)
            outputs = cls.apply(*members.merge(args, in_dims, [0] * len(args)))
            return members.split(outputs, [0] * len(outputs))

        cls.forward, cls.vmap = staticmethod(forward), staticmethod(vmap)

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function; every argument of `forward` must be given."""
        if not torch._C._are_functorch_transforms_active():
            base: Any = super(torch.autograd.Function, cls)
            return base.apply(*unwrap_dead_wrappers(args))
        interpreter = retrieve_current_functorch_interpreter()
        if not isinstance(interpreter, VmapInterpreter):
            return super().apply(*args)
        level = interpreter.level()
        unwrapped, dims = zip(*(_unwrap(arg, level) for arg in args), strict=True)
        with interpreter.lower():
            if all(dim is None for dim in dims):
                return cls.apply(*args)
            info = VmapInfo(interpreter.batch_size(), interpreter.randomness())
            outputs, axes = cls.vmap(info, dims, *unwrapped)
        if isinstance(outputs, Tensor):
            return _wrap(outputs, axes, level)
        return tuple(_wrap(*pair, level) for pair in zip(outputs, axes, strict=True))


def _map_leading_axes(cls: Any, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    members = MemberAxis(info.batch_size, nested=False)
    outputs = cls.apply(*members.merge(args, in_dims, [0] * len(args)))
    return outputs, 0 if isinstance(outputs, Tensor) else (0,) * len(outputs)


def _unwrap(arg: Any, level: int) -> tuple[Any, int | None]:
    """Return (tensor, axis mapped at this level), or (argument, None) if it is not mapped."""
    is_tensor = isinstance(arg, Tensor)
    return _functorch._unwrap_batched(arg, level) if is_tensor else (arg, None)


def _wrap(tensor: Tensor, axis: int | None, level: int) -> Tensor:
    return tensor if axis is None else _functorch._add_batch_dim(tensor, axis, level)


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


class MemberAxis:
    """Moves a mapped axis to the member axis and back.

    Args:
        size: the size of the mapped axis.
        nested: whether the tensors already have a member axis. Both axes then become one.
    """

    def __init__(self, size: int, *, nested: bool) -> None:
        self.size, self.nested = size, nested

    def merge(
        self, args: Sequence[Any], dims: Sequence[int | None], axes: Sequence[int]
    ) -> list[Any]:
        """Move axis `dims[i]` of each tensor to `axes[i]`; expand a tensor that is not mapped."""
        return [self._merge(*triple) for triple in zip(args, dims, axes, strict=True)]

    def _merge(self, tensor: Any, dim: int | None, axis: int) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        if dim is None:
            shape = [*tensor.shape[:axis], self.size, *tensor.shape[axis:]]
            tensor = tensor.unsqueeze(axis).expand(shape)
        elif dim != axis:  # movedim costs time, forward and backward, even if it moves nothing
            tensor = tensor.movedim(dim, axis)
        return tensor.flatten(axis, axis + 1) if self.nested else tensor

    def split(self, outputs: Sequence[Tensor], axes: Sequence[int]) -> tuple[Any, Any]:
        """Restore the mapped axis of the outputs; return them, and the axis of each."""
        if self.nested:
            pairs = zip(outputs, axes, strict=True)
            outputs = [tensor.unflatten(axis, (self.size, -1)) for tensor, axis in pairs]
        return tuple(outputs), tuple(axes)


def call_with_members(
    compute: Callable[..., Sequence[Tensor]], args: Sequence[Any], axes: int
) -> tuple[Tensor, ...]:
    """Call `compute`, which needs a member axis; tensors without one get one of size 1."""
    if args[0].dim() > axes:
        return tuple(compute(*args))
    whole = (arg[None] if isinstance(arg, Tensor) else arg for arg in args)
    return tuple(output[0] for output in compute(*whole))
