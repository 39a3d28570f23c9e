"""Affine maps whose weight or bias may be cut."""

from jaxtyping import Float
from torch import Tensor


def affine(
    x: Float[Tensor, "*N E"], weight: Float[Tensor, "E G"] | None, bias: Float[Tensor, "G"] | None
) -> Float[Tensor, "*N G"]:
    """Return x W + b; a missing weight or bias counts as zero, and G is E if both are missing."""
    if weight is not None:
        product = x @ weight
        return product if bias is None else product + bias
    return x.new_zeros(x.shape) if bias is None else bias.expand(*x.shape[:-1], -1)
