"""How every kernel is launched."""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    args: Sequence[Any],
    **options: Any,
):
    """Launch a kernel on the device of its first tensor; Triton would use the current device."""
    device = next(arg.device for arg in args if isinstance(arg, Tensor))
    scope: Any = contextlib.nullcontext()  # Triton's interpreter runs it
    if device.type == "cuda":
        scope = torch.cuda.device(device)
    with scope:
        kernel[grid](*args, **options)
