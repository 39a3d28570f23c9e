r"""Normalisers: what "the unit sphere" may mean.

    rms     x · √E / ‖x‖                       the sphere of radius √E
    l2      x / ‖x‖                            the literal unit sphere
    std     x / (std_E(x) + 1e-5)              mean not removed, ddof 1
    time_std         x_t / (std_t(x_0..x_{T-1}) + 1e-10), per channel: **leaks**
    time_std_causal  x_t / (std_t(x_0..x_t) + 1e-5), per channel; x_0 as it is

`time_std` is what the published code did to the inputs of its recurrent models: the
divisor is the spread over *all* positions, so every step sees a function of the whole
sequence. It exists to reproduce, and every table marks it. On vectors that are not a
sequence (component means, recurrent outputs) both time variants act as `std`.

S0; zoo.md 1.5.
"""

from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.sphere import onto_sphere


class Norm(StrEnum):
    """Which normaliser is applied to inputs, outputs and component vectors."""

    NONE = "none"
    RMS = "rms"
    L2 = "l2"
    STD = "std"
    TIME_STD = "time_std"
    TIME_STD_CAUSAL = "time_std_causal"

    @property
    def over_time(self) -> bool:
        """Whether a sequence is divided by a spread over its positions."""
        return self in (Norm.TIME_STD, Norm.TIME_STD_CAUSAL)


def normalise_vectors(x: Float[Tensor, "*N E"], norm: Norm) -> Float[Tensor, "*N E"]:
    """Normalise each vector by itself."""
    if norm is Norm.NONE:
        return x
    if norm in (Norm.L2, Norm.RMS):
        return onto_sphere(x, 1.0 if norm is Norm.L2 else x.shape[-1] ** 0.5)
    eps = 1e-10 if norm is Norm.TIME_STD else 1e-5
    return x / (x.std(dim=-1, keepdim=True) + eps)


def normalise_sequence(x: Float[Tensor, "B T E"], norm: Norm) -> Float[Tensor, "B T E"]:
    """Normalise a sequence of input vectors, over time where `norm` says so."""
    if norm is Norm.TIME_STD:
        return x / (x.std(dim=1, keepdim=True) + 1e-10)
    if norm is Norm.TIME_STD_CAUSAL:
        return x / (_std_so_far(x) + 1e-5)
    return normalise_vectors(x, norm)


Seen = tuple[int, Tensor, Tensor]
"""Of the inputs so far: how many, their mean and their summed squares about it, (B, E)."""


def normalise_next(
    x: Float[Tensor, "B E"], norm: Norm, seen: Seen | None
) -> tuple[Float[Tensor, "B E"], Seen | None]:
    """The next vector of `normalise_sequence`, and what the one after it needs to know.

    Not for `time_std`, whose every vector needs all later ones.
    """
    assert norm is not Norm.TIME_STD
    if norm is not Norm.TIME_STD_CAUSAL:
        return normalise_vectors(x, norm), None
    if seen is None:
        return x / (1 + 1e-5), (1, x, torch.zeros_like(x))
    n, mean, squares = seen
    moved = mean + (x - mean) / (n + 1)
    squares = squares + ((x - mean) * (x - moved)).clamp_min(0)
    spread = (squares / n).clamp_min(1e-20).sqrt()
    return x / (spread + 1e-5), (n + 1, moved, squares)


def _std_so_far(x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
    """Standard deviation of x_0..x_t for t >= 1 (ddof 1); at t = 0, one."""
    n = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)[:, None]
    mean = x.cumsum(1) / n
    # Welford's increments are sums of non-negative terms: no cancellation, no NaN.
    before = torch.cat([x[:, :1], mean[:, :-1]], dim=1)
    squares = ((x - before) * (x - mean)).clamp_min(0).cumsum(1)
    spread = (squares / (n - 1).clamp_min(1)).clamp_min(1e-20).sqrt()
    return torch.cat([torch.ones_like(spread[:, :1]), spread[:, 1:]], dim=1)
