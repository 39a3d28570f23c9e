"""What autograd functions written by hand have in common."""

from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._functorch.autograd_function import VmapInfo
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter
from torch._functorch.utils import unwrap_dead_wrappers


class CustomFunction(torch.autograd.Function):
    """A function whose gradient is derived by hand.

    Under `vmap` it is mapped as torch maps it, by its own rule; but torch looks for tensors inside
    of every argument and every result, and binds arguments to the signature of `forward`, and for
    a few small members that takes longer than what is computed. Here each argument is a tensor or
    holds none, and each result is one. Under other transforms, `grad` say, torch does as it does.
    What this reads of torch is private: should it move, nothing but time is lost without `apply`.
    """

    @classmethod
    def apply(cls, *given: Any) -> Any:
        """The function of these arguments; none is left to its default."""
        if not torch._C._are_functorch_transforms_active():
            plain: Any = super(torch.autograd.Function, cls)
            return plain.apply(*unwrap_dead_wrappers(given))
        outermost = retrieve_current_functorch_interpreter()
        if not isinstance(outermost, VmapInterpreter):
            return super().apply(*given)
        level = outermost.level()
        unwrapped, dims = zip(*(_unwrap(one, level) for one in given), strict=True)
        with outermost.lower():
            if all(dim is None for dim in dims):
                return cls.apply(*given)
            info = VmapInfo(outermost.batch_size(), outermost.randomness())
            found, axes = cls.vmap(info, dims, *unwrapped)
        if isinstance(found, Tensor):
            return _wrap(found, axes, level)
        return tuple(_wrap(*one, level) for one in zip(found, axes, strict=True))


def _unwrap(one: Any, level: int) -> tuple[Any, int | None]:
    """What is mapped at this level and along which axis, or what is not and None."""
    is_tensor = isinstance(one, Tensor)
    return _functorch._unwrap_batched(one, level) if is_tensor else (one, None)


def _wrap(one: Tensor, axis: int | None, level: int) -> Tensor:
    return one if axis is None else _functorch._add_batch_dim(one, axis, level)


class Backward(CustomFunction):
    """The gradient of another, a function of its own so that it too can be mapped over members."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "a gradient derived by hand has no derivative; differentiate the plain formula, of a "
            "cell its naive_scan, instead"
        )
