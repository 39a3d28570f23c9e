"""What compiled loops (`kernels/`) take: tensors of the processor, as NumPy sees them."""

from typing import Any

import torch
from torch import Tensor

TYPES = {torch.float32, torch.float64}
"""The types of numbers that loops are compiled for."""


def has_loops(tensor: Tensor, numbers: int = 0) -> bool:
    """Whether compiled loops take the tensor, of so many numbers at least; else plain formulas."""
    known = tensor.device.type == "cpu" and tensor.dtype in TYPES
    return known and tensor.numel() >= numbers


def has_products() -> bool:
    """Whether compiled loops can make products."""
    from lmzoo.functional.kernels import blas

    return blas.FOUND


def arrays(*tensors: Tensor) -> list[Any]:
    """Each in C order; what is in another order is copied, so outputs must have it."""
    return [tensor.detach().contiguous().numpy() for tensor in tensors]
