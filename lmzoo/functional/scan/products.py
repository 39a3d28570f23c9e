"""The products of a recurrence, with or without a member axis before the batch.

project          x_t W + b for every t, by one product
product          a W, into its place
accumulate       out + a W, in place
weight_gradient  Σ_t a_tᵀ g_t, by one product
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def project(
    x: Float[Tensor, "T *P B E"],
    weight: Float[Tensor, "*P E G"] | None,
    bias: Float[Tensor, "*P G"] | None,
    out: Float[Tensor, "T *P B G"],
) -> Float[Tensor, "T *P B G"]:
    """Out = x W + b, with either missing."""
    if weight is None:
        return out.zero_() if bias is None else out.copy_(bias.unsqueeze(-2).expand_as(out))
    if weight.dim() == 2:
        rows, flat = x.flatten(0, -2), out.view(-1, out.shape[-1])
        _ = product(rows, weight, flat) if bias is None else _onto(bias, rows, weight, flat)
        return out
    # Member by member it would be one product, and a copy of x and of out.
    for x_t, out_t in zip(x.unbind(0), out.unbind(0), strict=True):
        _ = product(x_t, weight, out_t) if bias is None else _onto(bias, x_t, weight, out_t)
    return out


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


def weight_gradient(
    inputs: Float[Tensor, "T *P B E"], gradients: Float[Tensor, "T *P B G"]
) -> Float[Tensor, "*P E G"]:
    """Σ_t inputs_tᵀ gradients_t."""
    if inputs.dim() == 3:
        return inputs.flatten(0, 1).mT @ gradients.flatten(0, 1)
    (a, *inputs_t), (g, *gradients_t) = inputs.unbind(0), gradients.unbind(0)
    total = torch.bmm(a.mT, g)
    for a, g in zip(inputs_t, gradients_t, strict=True):
        total.baddbmm_(a.mT, g)
    return total


def state_gradient(
    start: Float[Tensor, "*P B H"],
    states: Float[Tensor, "T *P B H"],
    gradients: Float[Tensor, "T *P B G"],
) -> Float[Tensor, "*P H G"]:
    """The same for the state before each step: start, then all states but the last."""
    first = start.mT @ gradients[0]
    return first if len(states) == 1 else first + weight_gradient(states[:-1], gradients[1:])


def bias_gradient(gradients: Float[Tensor, "T *P B G"]) -> Float[Tensor, "*P G"]:
    """Σ over steps and sequences."""
    return gradients.sum(-2).sum(0)  # over both at once takes several times as long


def input_gradient(
    through: Sequence[tuple[Float[Tensor, "T *P B _"], Float[Tensor, "*P E _"] | None]],
    out: Float[Tensor, "T *P B E"],
) -> None:
    """Out = Σ gradients Wᵀ over the products that read the inputs."""
    terms = [(gradients, transposed(weight)) for gradients, weight in through if weight is not None]
    if not terms:
        out.zero_()
    for k, (gradients, weight) in enumerate(terms):
        if k == 0:
            project(gradients, weight, None, out)
        elif weight.dim() == 2:
            out.view(-1, out.shape[-1]).addmm_(gradients.flatten(0, -2), weight)
        else:
            for gradient, out_t in zip(gradients.unbind(0), out.unbind(0), strict=True):
                out_t.baddbmm_(gradient, weight)


def transposed(weight: Float[Tensor, "*P H G"]) -> Float[Tensor, "*P G H"]:
    """Wᵀ laid out anew: a product at every step reads it faster so."""
    return weight.mT.contiguous()


def before(
    start: Float[Tensor, "*P B H"], states: Float[Tensor, "T *P B H"]
) -> list[Float[Tensor, "*P B H"]]:
    """The state that each step starts from."""
    return [start, *states.unbind(0)[:-1]]


def _onto(bias: Tensor, a: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Out = b + a W: faster than the library's product with a bias."""
    return accumulate(out.copy_(bias.unsqueeze(-2).expand_as(out)), a, weight)
