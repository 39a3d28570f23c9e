"""What autograd functions written by hand have in common."""

import inspect
from typing import Any

import torch
from torch import Tensor


class ByHand(torch.autograd.Function):
    """A function whose gradient is derived by hand.

    torch asks for the signature of `forward` at every call, under `torch.func` twice, and that is
    a twentieth of a small model's step: here it finds it written down.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.forward.__dict__["__signature__"] = inspect.signature(cls.forward)


class WayBack(ByHand):
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
