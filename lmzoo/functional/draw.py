"""Initial values."""

import torch
from torch import Tensor


def uniform(shape: tuple[int, ...], fan_in: int) -> Tensor:
    """U(fan_in): uniform on ±1/√fan_in, the default of a linear map."""
    return torch.empty(shape).uniform_(-1, 1) / fan_in**0.5
