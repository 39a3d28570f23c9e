"""How a GPU multiplies float32 numbers: a named choice, which is part of the recipe of a run.

    tf32x3   three products of TF32 numbers (10 bits of fraction): a float32 product up to 1e-6
    tf32     one product of TF32 numbers
    bf16     the operands are rounded to bfloat16 (7 bits of fraction)

Sums and states are float32 in each. The choice holds for the kernels of recurrences. The products
of torch, such as the projection of the inputs, use float32 with `tf32x3`, and TF32 with `tf32` and
`bf16`: they are limited by memory, and a conversion to bfloat16 would read and write it once more.
A CPU computes in float32 (or float64), so it accepts the default only.

Ootomo and Yokota 2022 (arXiv:2203.03341): three products.
"""

import contextlib
import threading
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import torch

from lmzoo.base.errors import UserError

Precision = StrEnum("Precision", "TF32X3 TF32 BF16")
"""How a GPU multiplies float32 numbers."""
WIDEST = {Precision.TF32X3: 64, Precision.TF32: 128, Precision.BF16: 128}
"""Largest width at which the weights of a recurrence stay on the chip: up to it a thread has enough
registers, or spills a few bytes (`benchmarks/gpu_resources.py`)."""


class _Current(threading.local):
    precision = Precision.TF32X3


_CURRENT = _Current()


def current_precision() -> Precision:
    """Return the precision of this thread's products."""
    return _CURRENT.precision


@contextlib.contextmanager
def use_precision(precision: Precision) -> Iterator[None]:
    """Compute this thread's products on a GPU in this precision.

    For the products and convolutions of torch it holds in all threads, because torch has one flag.
    """
    before, _CURRENT.precision = _CURRENT.precision, precision
    backends: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    flags = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = precision is not Precision.TF32X3
    try:
        yield
    finally:
        _CURRENT.precision = before
        for backend, flag in zip(backends, flags, strict=True):
            backend.allow_tf32 = flag


def check_precision(precision: Precision, device: torch.device) -> None:
    """Check that a device computes in this precision.

    Raises:
        UserError: The device is a CPU, and the precision is not the default.
    """
    if device.type == "cpu" and precision is not Precision.TF32X3:
        raise UserError(
            f"recipe.precision={precision} needs a GPU: a CPU multiplies float32 numbers exactly "
            "as float32; drop the setting, or train on a GPU"
        )
