r"""Noise from uniform numbers: independent in training, fixed in evaluation.

    u_s = (π(s) + v_s) / S      π a permutation of 0..S-1 and v ~ U(0, 1), per coordinate
    normal  Φ^{-1}(u)           Gumbel  −log(−log u)

Every u_s is uniform, so a mean over s is unbiased. The S draws of a coordinate fall into S
different strata, so the mean has a small variance. In evaluation all sequences share one draw: a
score does not depend on the batch or on the call, and models are compared on the same noise.

McKay, Beckman & Conover 1979 (Latin hypercube sampling).
"""

from functools import partial

import torch
from torch import Tensor

from lmzoo.types import Shape

SEED = 1979
"""The seed of the noise that all evaluations share."""


def fresh_uniforms(
    shape: Shape,
    like: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return independent U(0, 1), at least in float32; by default from the global generator."""
    device = like.device
    if generator is not None:
        device = generator.device
    dtype = _dtype(like)
    u = torch.rand(shape, dtype=dtype, device=device, generator=generator)
    return _clamp(u.to(like.device))


def shared_uniforms(shape: Shape, like: Tensor) -> Tensor:
    """Return the same stratified U(0, 1) at every call; the first axis is the draw s."""
    generator = torch.Generator().manual_seed(SEED)
    # Drawn on the CPU in float64, so that all devices and dtypes get the same numbers.
    draw = partial(
        torch.rand,
        shape,
        generator=generator,
        dtype=torch.float64,
        device="cpu",
    )
    # The order of random numbers is a random permutation: each draw has a stratum of its own.
    stratum = draw().argsort(dim=0)
    within = draw()
    u = (stratum + within) / shape[0]
    u = u.to(like.device, _dtype(like))
    return _clamp(u)


def normal(u: Tensor) -> Tensor:
    """Transform uniform numbers to N(0, 1)."""
    return torch.special.ndtri(u)


def gumbel(u: Tensor) -> Tensor:
    """Transform uniform numbers to Gumbel(0, 1): argmax(logits + gumbel) samples the softmax."""
    exponential = -u.log()
    return -exponential.log()


def _dtype(like: Tensor) -> torch.dtype:
    """Return a dtype that is precise enough for the transforms: no half precision."""
    return torch.promote_types(like.dtype, torch.float32)


def _clamp(u: Tensor) -> Tensor:
    """Exclude 0 and 1, where the transforms are infinite."""
    eps = torch.finfo(u.dtype).eps
    return u.clamp(eps, 1 - eps)
