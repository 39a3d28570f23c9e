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


def taps(shape: Shape) -> Tensor:
    """Return the initial weights of a depthwise convolution, U(window) as in torch."""
    return torch.empty(shape).uniform_(-1, 1) / shape[-1] ** 0.5


tap_bias = partial(uniform, fan_in=WINDOW)
"""The initial bias of a depthwise convolution, as in torch."""


def linear(fan_in: int) -> OwnDraw:
    """Return torch's draw of a linear layer, U(fan_in)."""
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
    log_delta = torch.empty(shape).uniform_(math.log(1e-3), math.log(1e-1))
    delta = log_delta.exp()
    # The inverse of softplus; expm1, because 1 − e^(−Δ) of a small Δ loses digits.
    return delta + torch.log(-torch.expm1(-delta))
