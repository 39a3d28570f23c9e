"""The products of a recurrence, with or without a member axis before the batch.

product          a W, into its place
accumulate       out + a W, in place
projected        x_t W + b for every t, all by one product or each when its step comes
biased           b for every t
in_step          whether products are made step by step
"""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

LARGE = 2**15
"""Numbers of one step (*P, B, E) from which a processor's products are made step by step."""


def in_step(like: Tensor, shape: Sequence[int], least: int | None = None) -> bool:
    """Whether the products of inputs and of weights' gradients are made in the loop.

    One product over all steps has fewer operations, and arrays of all steps. Where these do
    not fit in the cache, products of what a step has just written are faster.

    Args:
        like: of the device.
        shape: one step's inputs, (*P, B, E).
        least: numbers from which it pays; None is `LARGE`.
    """
    return like.device.type == "cpu" and math.prod(shape) >= (LARGE if least is None else least)


def laid_out(x: Float[Tensor, "T *P B E"]) -> Float[Tensor, "T *P B E"]:
    """A copy that the products of a sweep read without another."""
    if x.dim() == 3 or in_step(x, x.shape[1:]):
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
    *,
    in_step: bool,
) -> Iterator[Float[Tensor, "*P B G"]]:
    """Each out_t = x_t W + b in turn; without `in_step` by one product."""
    if in_step:
        for x_t, out_t in zip(x.unbind(0), out.unbind(0), strict=True):
            yield product(x_t, weight, out_t) if bias is None else _affine(bias, x_t, weight, out_t)
        return
    if out.dim() == 3:
        rows, flat = side_by_side(x), out.view(-1, out.shape[-1])
        _ = product(rows, weight, flat) if bias is None else _affine(bias, rows, weight, flat)
    else:
        steps = apart(side_by_side(x) @ weight, len(x))
        _ = out.copy_(steps) if bias is None else torch.add(steps, bias.unsqueeze(-2), out=out)
    yield from out.unbind(0)


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
