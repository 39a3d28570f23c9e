"""The products of a recurrence, with or without a member axis before the batch.

product          a W, into its place
accumulate       out + a W, in place
projected        x_t W + b for every t, all by one product
biased           b for every t
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def laid_out(x: Float[Tensor, "T *P B E"]) -> Float[Tensor, "T *P B E"]:
    """A copy that the products of a sweep read without another."""
    if x.dim() == 3:
        return x.clone(memory_format=torch.contiguous_format)
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format).transpose(0, 1)


def side_by_side(x: Float[Tensor, "T *P B E"]) -> Float[Tensor, "*P N E"]:
    """All steps' rows as those of one product for each member, N = T · B."""
    return x.flatten(0, 1) if x.dim() == 3 else x.transpose(0, 1).flatten(1, 2)


def apart(rows: Float[Tensor, "*P N E"], steps: int) -> Float[Tensor, "T *P B E"]:
    """The steps of `side_by_side`."""
    return rows.unflatten(-2, (steps, -1)).movedim(-3, 0)


def product(
    a: Float[Tensor, "*P B H"], weight: Float[Tensor, "*P H G"], out: Float[Tensor, "*P B G"]
) -> Float[Tensor, "*P B G"]:
    """Out = a W; with members at half the cost of `torch.matmul` into a place."""
    return (torch.mm if out.dim() == 2 else torch.bmm)(a, weight, out=out)


def accumulate(
    out: Float[Tensor, "*P B G"], a: Float[Tensor, "*P B H"], weight: Float[Tensor, "*P H G"]
) -> Float[Tensor, "*P B G"]:
    """Add a W to `out`."""
    return out.addmm_(a, weight) if out.dim() == 2 else out.baddbmm_(a, weight)


def biased(
    bias: Float[Tensor, "*P G"] | None, out: Float[Tensor, "T *P B G"]
) -> tuple[Float[Tensor, "*P B G"], ...]:
    """Each out_t = b, or zero."""
    _ = out.zero_() if bias is None else out.copy_(bias.unsqueeze(-2).expand_as(out))
    return out.unbind(0)


def projected(
    x: Float[Tensor, "T *P B E"],
    weight: Float[Tensor, "*P E G"],
    bias: Float[Tensor, "*P G"] | None,
    out: Float[Tensor, "T *P B G"],
) -> tuple[Float[Tensor, "*P B G"], ...]:
    """Each out_t = x_t W + b."""
    if out.dim() == 3:
        rows, flat = side_by_side(x), out.view(-1, out.shape[-1])
        _ = product(rows, weight, flat) if bias is None else _affine(bias, rows, weight, flat)
    else:
        steps = apart(side_by_side(x) @ weight, len(x))
        _ = out.copy_(steps) if bias is None else torch.add(steps, bias.unsqueeze(-2), out=out)
    return out.unbind(0)


def transposed(weight: Float[Tensor, "*P H G"]) -> Float[Tensor, "*P G H"]:
    """Wᵀ laid out anew: a product at every step reads it faster so."""
    return weight.mT.contiguous()


def before(
    start: Float[Tensor, "*P B H"], states: Float[Tensor, "T *P B H"]
) -> Sequence[Float[Tensor, "*P B H"]]:
    """The state that each step starts from."""
    return [start, *states.unbind(0)[:-1]]


def _affine(bias: Tensor, a: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Out = b + a W: faster than the library's product with a bias."""
    return accumulate(out.copy_(bias.unsqueeze(-2).expand_as(out)), a, weight)
