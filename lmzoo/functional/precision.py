"""Sums, counts and positions need single precision: bfloat16 has no whole numbers above 256."""

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)


def single(part: Tensor) -> Tensor:
    """Return a tensor in float32 if it has half precision, else itself."""
    if part.dtype in HALF:
        return part.float()
    return part
