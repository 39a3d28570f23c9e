"""Initial weights that several cells share; the others are in the files of their cells."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from lmzoo.cells.base import OwnDraw
from lmzoo.functional.parameters import uniform
from lmzoo.types import Shape

WINDOW = 4
"""Tokens that a short convolution reads, the current one included."""


def ones(shape: Shape) -> Tensor:
    """Return the initial weights of a norm."""
    return torch.ones(shape)


def by_columns(shape: Shape) -> Tensor:
    """Return torch's draw of a matrix or of a depthwise convolution, U(columns)."""
    return uniform(shape, shape[-1])


tap_bias = partial(uniform, fan_in=WINDOW)
"""The initial bias of a depthwise convolution, as in torch."""


def by_fan_in(fan_in: int) -> OwnDraw:
    """Return torch's draw of a bias, U(fan_in)."""
    return partial(uniform, fan_in=fan_in)


def normal(std: float) -> OwnDraw:
    """Return a draw from N(0, std²)."""
    return lambda shape: std * torch.randn(shape)


def glorot(gain: float) -> OwnDraw:
    """Return the draw of Glorot & Bengio 2010."""

    def draw(shape: Shape) -> Tensor:
        return nn.init.xavier_uniform_(torch.empty(shape), gain)

    return draw


def log_rates(shape: Shape, low: float = 1.0) -> Tensor:
    """Return the logarithms of initial decay rates, drawn from U(low, 16)."""
    return torch.empty(shape).uniform_(low, 16).log()


def delta_bias(shape: Shape) -> Tensor:
    """Return biases b with softplus(b) log-uniform in [0.001, 0.1]."""
    low = math.log(1e-3)
    high = math.log(1e-1)
    log_delta = torch.empty(shape).uniform_(low, high)
    delta = log_delta.exp()
    # The inverse of softplus; expm1, because 1 − e^(−Δ) of a small Δ loses digits.
    rest = -torch.expm1(-delta)
    return delta + rest.log()
