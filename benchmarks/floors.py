r"""The least time that a training step of DLM46 can take on a device: two floors.

    matrix      3 · 2 [ n (2 E² + 2 E² + 2 E K) + K V E ] floating point operations,
                n = B (T − 1): both input products, both state products, the gate and the
                words' scores at every position, and the K normalisers over V words; the
                way back costs as much twice over
    bandwidth   4 · [ 7 N + 2 n (5 E + 3 K) ] bytes: N weights with gradient and two moments
                read, three of them written; what the recurrence and the emission keep of
                every position, written once and read once

Each is divided by the rate that the device reached on one large product and on one large
copy, just before. P members need P times as much.
"""

from dataclasses import dataclass

import torch
from device_clock import seconds_of
from fuse import Shape


@dataclass(frozen=True)
class Rates:
    """What a device does in a second."""

    flops: float
    bytes: float


def rates_of(device: torch.device, *, side: int = 8192, rounds: int = 5) -> Rates:
    """Measured by a product of two square float32 matrices of this side, and by a copy of one."""
    a, b = torch.randn(2, side, side, device=device).unbind()
    out = torch.empty_like(a)
    product = min(seconds_of(lambda: torch.mm(a, b, out=out), device) for _ in range(rounds))
    copy = min(seconds_of(lambda: out.copy_(a), device) for _ in range(rounds))
    return Rates(flops=2 * side**3 / product, bytes=2 * 4 * side**2 / copy)


def weights_of(shape: Shape) -> int:
    """N of a member: embeddings, the unit, the components with their scales, the gate."""
    E, K = shape.E, shape.K
    return shape.V * E + 4 * E * E + 2 * E + K * (E + 1) + K * (E + 1)


def matrix_floor(shape: Shape, rates: Rates) -> float:
    """Seconds of a step of all members if nothing but their products took time."""
    n, E, K = shape.B * (shape.T - 1), shape.E, shape.K
    scored = shape.V if n >= shape.V else shape.V + n  # words, and targets where those are fewer
    forward = 2 * (n * (4 * E * E + E * K) + K * scored * E)
    return shape.P * 3 * forward / rates.flops


def bandwidth_floor(shape: Shape, rates: Rates) -> float:
    """Seconds of a step of all members if nothing but their memory took time."""
    n = shape.B * (shape.T - 1)
    numbers = 7 * weights_of(shape) + 2 * n * (5 * shape.E + 3 * shape.K)
    return shape.P * 4 * numbers / rates.bytes
