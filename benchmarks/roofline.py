r"""Two lower bounds on the time of a training step of DLM46 on a device.

    compute     3 · 2 [ n (2 E² + 2 E² + 2 E K) + K V E ] floating point operations,
                n = B (T − 1): both input products, both state products, the gate and the
                tokens' scores at every position, and the K normalisers over V tokens; the
                backward pass costs twice as much as the forward pass
    memory      4 · [ 7 N + 2 n (5 E + 3 K) ] bytes: N weights with gradient and two moments
                read, three of them written; what the recurrence and the emission store of
                every position, written once and read once

Each is divided by the rate that the device reaches on one large product and on one large copy,
measured just before. P pack members need P times as much.
"""

from dataclasses import dataclass

import torch
from device_clock import device_seconds
from fuse import Shape


@dataclass(frozen=True)
class Rates:
    """Operations and bytes per second of a device."""

    flops: float
    bytes: float


def measure_rates(device: torch.device, *, side: int = 8192, rounds: int = 5) -> Rates:
    """Measure a product of two square float32 matrices with this side, and a copy of one."""
    a, b = torch.randn(2, side, side, device=device).unbind()
    out = torch.empty_like(a)
    product = min(device_seconds(lambda: torch.mm(a, b, out=out), device) for _ in range(rounds))
    copy = min(device_seconds(lambda: out.copy_(a), device) for _ in range(rounds))
    return Rates(flops=2 * side**3 / product, bytes=2 * 4 * side**2 / copy)


def count_weights(shape: Shape) -> int:
    """Return N of one member: embeddings, the unit, the components with their scales, the gate."""
    E, K = shape.E, shape.K
    return shape.V * E + 4 * E * E + 2 * E + K * (E + 1) + K * (E + 1)


def compute_bound(shape: Shape, rates: Rates) -> float:
    """Return the seconds that the matrix products of a step of all members need."""
    n, E, K = shape.B * (shape.T - 1), shape.E, shape.K
    scored = shape.V if n >= shape.V else shape.V + n  # tokens, and targets if those are fewer
    forward = 2 * (n * (4 * E * E + E * K) + K * scored * E)
    return shape.P * 3 * forward / rates.flops


def memory_bound(shape: Shape, rates: Rates) -> float:
    """Return the seconds that the memory accesses of a step of all members need."""
    n = shape.B * (shape.T - 1)
    numbers = 7 * count_weights(shape) + 2 * n * (5 * shape.E + 3 * shape.K)
    return shape.P * 4 * numbers / rates.bytes
