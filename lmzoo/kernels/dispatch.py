"""Decide whether kernels accept a tensor, pass tensors to them, and report their calls."""

import contextlib
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

DTYPES = {torch.float32, torch.float64}
"""The floating point types that kernels are compiled for."""


def has_kernels(tensor: Tensor, min_size: int = 0) -> bool:
    """Return whether kernels accept this tensor and it has at least `min_size` elements.

    They accept none in `without_kernels`, and none under autocast, which makes other arguments of
    a kernel bfloat16.
    """
    if "cpu" in _CURRENT.disabled or torch.is_autocast_enabled("cpu"):
        return False
    return tensor.device.type == "cpu" and tensor.dtype in DTYPES and tensor.numel() >= min_size


def has_product_kernels(tensor: Tensor) -> bool:
    """Return whether kernels that call matrix products accept this tensor.

    They need the BLAS routines of torch's library, which some builds of torch do not have.
    """
    if not has_kernels(tensor):
        return False
    from lmzoo.kernels.cpu import blas  # imports numba, which takes half a second

    return blas.HAS_PRODUCTS


def has_gpu_kernels(tensor: Tensor) -> bool:
    """Return whether the kernels of `kernels/gpu` accept this tensor: float32 or complex64.

    The environment variable TRITON_INTERPRET=1, set before Triton is imported, runs them on CPU
    tensors.
    """
    if "gpu" in _CURRENT.disabled or tensor.dtype not in (torch.float32, torch.complex64):
        return False
    on_gpu = tensor.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return on_gpu and not torch.is_autocast_enabled(tensor.device.type) and _has_triton()


@functools.cache
def _has_triton() -> bool:
    # ROCm also has Triton and calls itself "cuda", but products in `tf32x3` do not compile there.
    return importlib.util.find_spec("triton") is not None and torch.version.hip is None


def as_arrays(*tensors: Tensor) -> list[Any]:
    """Return the tensors as NumPy arrays in C order.

    A tensor in another memory order is copied, so a kernel's output tensors must be contiguous.
    """
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


Kernel = Callable[..., Any]
Listener = Callable[[Kernel, tuple[Any, ...]], None]


class _Current(threading.local):
    listener: Listener | None = None
    disabled: frozenset[str] = frozenset()


_CURRENT = _Current()


def run_kernel(kernel: Kernel, *args: Any) -> Any:
    """Run a kernel, after reporting the call to this thread's listener if there is one.

    torch's dispatch modes do not see kernels, so a recorder of operations needs this report.
    """
    if _CURRENT.listener is not None:
        _CURRENT.listener(kernel, args)
    return kernel(*args)


@contextlib.contextmanager
def record_kernels(listener: Listener) -> Iterator[None]:
    """Call `listener(kernel, args)` before every kernel that this thread runs in the context."""
    previous, _CURRENT.listener = _CURRENT.listener, listener
    try:
        yield
    finally:
        _CURRENT.listener = previous


@contextlib.contextmanager
def without_kernels(*kinds: str) -> Iterator[None]:
    """Let this thread use torch operations instead of the kernels, all or those of cpu or gpu."""
    before, _CURRENT.disabled = _CURRENT.disabled, frozenset(kinds or ("cpu", "gpu"))
    try:
        yield
    finally:
        _CURRENT.disabled = before
