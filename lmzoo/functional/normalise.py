r"""Normalisers of vectors and of sequences of vectors.

    rms     x · √E / ‖x‖                       the sphere of radius √E
    l2      x / ‖x‖                            the literal unit sphere
    std     x / (std_E(x) + 1e-5)              mean not removed, ddof 1
    time_std         x_t / (std_t(x_0..x_{T-1}) + 1e-10), per channel: **leaks**
    time_std_causal  x_t / (std_t(x_0..x_t) + 1e-5), per channel; x_0 as it is

The published code applies `time_std` to the inputs of its recurrent models. Its divisor is the
standard deviation over all positions, so every step depends on the whole sequence. It exists for
reproduction, and every table marks it. On vectors that are not a sequence (component means,
recurrent outputs) both time variants act as `std`.

A normaliser of one's own is a function of vectors (.., E), registered by name:

    @normaliser("softsign")
    def softsign(x: Tensor) -> Tensor:
        return x / (1 + x.abs())

The sphere of radius R:

    y = f x        f = R / max(‖x‖, ε),  ε = 1e-12
    ∂L/∂x = f ( g − y (g·y) / R² )        g = ∂L/∂y; where ‖x‖ < ε the second term is missing

A GPU has one kernel each way (`kernels/gpu/sphere.py`), in place of some ten launches. With
f = R / √(‖x‖² + δ) in its place, as in the norm of cells with a matrix state, the gradient is the
same, and so is the kernel.

Source: S0.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lmzoo.base.config import OptionalName
from lmzoo.base.errors import UserError
from lmzoo.base.registry import Registry
from lmzoo.functional.precision import single
from lmzoo.functional.sequence import delayed
from lmzoo.kernels.dispatch import Backward, CustomFunction, has_gpu_kernels
from lmzoo.types import Features, SequenceVectors, Vectors

MIN_LENGTH = 1e-12
"""ε: a shorter vector is scaled by R / ε."""


def project_to_sphere(x: Vectors, radius: float) -> Vectors:
    """Scale each vector to length `radius`."""
    if has_gpu_kernels(x):
        return _Project.apply(x, radius, 0.0)[0]
    # One factor per vector: x / ‖x‖ would need several more passes over x backward.
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    factor = radius / length.clamp_min(MIN_LENGTH)
    return x * factor


def rms_norm(x: Vectors) -> Vectors:
    """Return x / √(Σ x² / E + 1e-5)."""
    if has_gpu_kernels(x):
        width = x.shape[-1]
        # ε of the mean square is E ε of the sum, which the kernel takes.
        floor = 1e-5 * width
        return _Project.apply(x, width**0.5, floor)[0]
    mean_square = x.square().mean(-1, keepdim=True)
    return x * torch.rsqrt(mean_square + 1e-5)


def unit(x: Vectors) -> Vectors:
    """Return x / √(Σ x² + 1e-6); 0 stays 0."""
    if has_gpu_kernels(x):
        return _Project.apply(x, 1.0, 1e-6)[0]
    square = x.square().sum(-1, keepdim=True)
    return x * torch.rsqrt(square + 1e-6)


class _Project(CustomFunction):
    """(x, R, δ) -> (y, f) on a GPU; δ = 0 is the sphere."""

    @staticmethod
    def forward(x: Tensor, radius: float, floor: float) -> tuple[Tensor, Tensor]:
        from lmzoo.kernels.gpu import sphere

        return sphere.forward(x, radius, MIN_LENGTH, floor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any):
        ctx.radius = inputs[1]
        ctx.mark_non_differentiable(output[1])
        # A gradient that nobody asked for stays None.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(
        ctx: Any,
        *upstream: Tensor | None,
    ) -> tuple[Tensor | None, None, None]:
        if upstream[0] is None:
            return None, None, None
        y, f = ctx.saved_tensors
        g = upstream[0]
        gradient = _ProjectBackward.apply(g, y, f, ctx.radius)
        return gradient, None, None


class _ProjectBackward(Backward):
    """(g, y, f, R) -> ∂L/∂x."""

    @staticmethod
    def forward(g: Tensor, y: Tensor, f: Tensor, radius: float) -> Tensor:
        from lmzoo.kernels.gpu import sphere

        return sphere.backward(g, y, f, radius, MIN_LENGTH)


Normaliser = Callable[[Tensor], Tensor]
NORMALISERS: Registry[Normaliser] = Registry("normaliser")
"""Normalisers besides those of `Norm`."""


def normaliser(name: str) -> Callable[[Normaliser], Normaliser]:
    """Return a decorator that registers a function of vectors (.., E) under a new name."""
    if name in [norm.value for norm in Norm]:
        raise UserError(f"normaliser {name!r} exists already; choose another name")
    return NORMALISERS(name)


class Norm(OptionalName):
    """The normaliser of inputs, outputs and component vectors, by name."""

    NONE = "none"
    RMS = "rms"
    L2 = "l2"
    STD = "std"
    TIME_STD = "time_std"
    TIME_STD_CAUSAL = "time_std_causal"

    @classmethod
    def _missing_(cls, value: object) -> "Norm | None":
        if not isinstance(value, str) or value not in NORMALISERS:
            return super()._missing_(value)
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    @property
    def part(self) -> Any:
        """The registered function; None for the normalisers of this module."""
        return NORMALISERS.get(self)

    @property
    def leak(self) -> str:
        """Why inputs that are normalised depend on later ones; '' if they do not."""
        if self is not Norm.TIME_STD:
            return ""
        return "inputs are divided by their spread over the whole sequence (time_std)"

    @property
    def over_time(self) -> bool:
        """Whether a sequence is divided by a standard deviation over positions."""
        return self in (Norm.TIME_STD, Norm.TIME_STD_CAUSAL)


def normalise_vectors(x: Vectors, norm: Norm) -> Vectors:
    """Normalise each vector by itself."""
    if norm is Norm.NONE:
        return x
    if norm.part is not None:
        return norm.part(x)
    if norm is Norm.L2:
        return project_to_sphere(x, 1.0)
    if norm is Norm.RMS:
        width = x.shape[-1]
        return project_to_sphere(x, width**0.5)
    eps = 1e-5
    # As published in S0.
    if norm is Norm.TIME_STD:
        eps = 1e-10
    std = x.std(dim=-1, keepdim=True)
    return x / (std + eps)


def normalise_sequence(x: Features, norm: Norm) -> Features:
    """Normalise a sequence of input vectors, over time for the time variants."""
    if norm is Norm.TIME_STD:
        spread = x.std(dim=1, keepdim=True)
        return x / (spread + 1e-10)
    if norm is Norm.TIME_STD_CAUSAL:
        std = _prefix_std(single(x))
        divisor = (std + 1e-5).to(x.dtype)
        return x / divisor
    return normalise_vectors(x, norm)


RunningMoments = tuple[int, Tensor, Tensor]
"""The count of the inputs so far, their mean, and their sum of squares about it, (B, E)."""


def normalise_next(
    x: SequenceVectors, norm: Norm, moments: RunningMoments | None
) -> tuple[SequenceVectors, RunningMoments | None]:
    """Normalise the next vector of a sequence, as `normalise_sequence` does for all at once.

    The moments are for the next call, and None at the start; `time_std` needs the later vectors.
    """
    assert norm is not Norm.TIME_STD
    if norm is not Norm.TIME_STD_CAUSAL:
        return normalise_vectors(x, norm), None
    if moments is None:
        mean = single(x)
        squares = torch.zeros_like(mean)
        # One vector has no spread: it counts as 1.
        return x / (1 + 1e-5), (1, mean, squares)
    n, mean, squares = moments
    # Welford's update: no sum of squares minus a square of sums, which would cancel.
    deviation = x - mean
    new_mean = mean + deviation / (n + 1)
    increment = deviation * (x - new_mean)
    # Rounding may give a small negative product.
    squares = squares + increment.clamp_min(0)
    variance = squares / n
    std = variance.clamp_min(1e-20).sqrt()
    divisor = (std + 1e-5).to(x.dtype)
    return x / divisor, (n + 1, new_mean, squares)


def _prefix_std(x: Features) -> Features:
    """Return the standard deviation of x_0..x_t (ddof 1); 1 at t = 0."""
    steps = x.shape[1]
    n = torch.arange(1, steps + 1, device=x.device)
    n = n[:, None]
    mean = x.cumsum(1) / n
    # Welford's increments are sums of non-negative terms: no cancellation, no NaN.
    previous = delayed(mean, x[:, 0])
    increments = (x - previous) * (x - mean)
    squares = increments.clamp_min(0).cumsum(1)
    variance = squares / (n - 1).clamp_min(1)
    std = variance.clamp_min(1e-20).sqrt()
    later = std[:, 1:]
    first = torch.ones_like(std[:, :1])
    return torch.cat([first, later], 1)
