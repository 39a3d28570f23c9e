"""What compiled loops (`kernels/`) take: tensors of the processor, as NumPy sees them."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

TYPES = {torch.float32, torch.float64}
"""The types of numbers that loops are compiled for."""


def has_kernels(tensor: Tensor, numbers: int = 0) -> bool:
    """Whether compiled loops take the tensor, of so many numbers at least; else plain formulas."""
    known = tensor.device.type == "cpu" and tensor.dtype in TYPES
    return known and tensor.numel() >= numbers


def has_products() -> bool:
    """Whether compiled loops can make products."""
    from lmzoo.kernels.cpu import blas

    return blas.FOUND


def as_arrays(*tensors: Tensor) -> list[Any]:
    """Each in C order; what is in another order is copied, so outputs must have it."""
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


Loop = Callable[..., Any]
Listener = Callable[[Loop, tuple[Any, ...]], None]


class _Heard(threading.local):
    by: Listener | None = None


_HEARD = _Heard()


def run_kernel(loop: Loop, *given: Any) -> Any:
    """Run a compiled loop; who listens on this thread is told of it first.

    torch sees nothing of what loops do: whoever records its operations has to be told.
    """
    if _HEARD.by is not None:
        _HEARD.by(loop, given)
    return loop(*given)


@contextlib.contextmanager
def record_kernels(listener: Listener) -> Iterator[None]:
    """While it lasts, the listener is told of every loop that this thread runs."""
    before, _HEARD.by = _HEARD.by, listener
    try:
        yield
    finally:
        _HEARD.by = before
