r"""Noise as uniform numbers: fresh in training, the same for everyone in evaluation.

    u_s = (π(s) + v_s) / S      π a permutation of 0..S-1 and v ~ U(0, 1), per coordinate
    normal  Φ^{-1}(u)           Gumbel  −log(−log u)

Every u_s is uniform, so a mean over s is unbiased; the S draws of a coordinate fall into
S different strata, so it varies little. In evaluation all sequences share one draw of
the noise: a score is a number, does not depend on batch-mates, and models are compared
on the same noise. Only over other draws of that noise would it vary.

McKay, Beckman & Conover 1979 (Latin hypercube sampling).
"""

import torch
from jaxtyping import Float
from torch import Tensor

SEED = 1979
"""Of the noise that all evaluations share."""


def fresh_uniforms(shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "..."]:
    """Independent U(0, 1) from the global generator."""
    return _inside(torch.rand(shape, dtype=like.dtype, device=like.device))


def shared_uniforms(shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "..."]:
    """The same stratified U(0, 1) at every call; the first axis counts the draws."""
    generator = torch.Generator().manual_seed(SEED)
    # Drawn on the processor in float64, so that they are the same everywhere.
    stratum = torch.rand(shape, generator=generator, dtype=torch.float64).argsort(dim=0)
    within = torch.rand(shape, generator=generator, dtype=torch.float64)
    return _inside(((stratum + within) / shape[0]).to(like))


def normal(u: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """N(0, 1)."""
    return torch.special.ndtri(u)


def gumbel(u: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Gumbel(0, 1): argmax(logits + gumbel) is a draw from softmax(logits)."""
    return -(-u.log()).log()


def _inside(u: Tensor) -> Tensor:
    """Neither 0 nor 1, where the transforms are infinite."""
    tiny = torch.finfo(u.dtype).eps
    return u.clamp(tiny, 1 - tiny)
