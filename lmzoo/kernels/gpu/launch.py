"""How every kernel is launched."""

import contextlib
from typing import Any

import torch
from torch import Tensor


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    """Launch a kernel on the device of its first tensor; Triton would use the current device."""
    device = next(arg.device for arg in args if isinstance(arg, Tensor))
    on_gpu = device.type == "cuda"  # otherwise Triton's interpreter runs it
    with torch.cuda.device(device) if on_gpu else contextlib.nullcontext():
        kernel[grid](*args, **options)
