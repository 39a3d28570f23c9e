r"""The torch operations of a sweep, with or without a member axis before the batch.

product             out = a W
add_product         out + a W, in place
project_steps       out_t = x_t W + b for every t, by one product
product_over_steps  Σ_t q_tᵀ d_t, the gradient of W where a_t = q_t W + b and d_t = ∂L/∂a_t

sigmoid_backward    g ⊙ y ⊙ (1 − y), from the output y
tanh_backward       g ⊙ (1 − y²)
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor


class StepBuffer:
    """One tensor (T, *P, B, G) of all steps, and views of it."""

    def __init__(self, tensor: Float[Tensor, "T *P B G"]) -> None:
        self.tensor = tensor

    def columns(self, begin: int, end: int) -> "StepBuffer":
        """Return the columns begin..end-1."""
        return StepBuffer(self.tensor[..., begin:end])

    @cached_property
    def steps(self) -> tuple[Float[Tensor, "*P B G"], ...]:
        """The views of all steps; indexing at every step would cost as much as a small product."""
        return self.tensor.unbind(0)

    @cached_property
    def rows(self) -> Float[Tensor, "*P N G"]:
        """The rows of all steps, N = T · B."""
        return flatten_steps(self.tensor)


def contiguous_copy(x: Float[Tensor, "T *P B E"]) -> Float[Tensor, "T *P B E"]:
    """Copy x so that the products of a sweep need no further copy: members first in memory."""
    if x.dim() == 3:
        return x.clone(memory_format=torch.contiguous_format)
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format).transpose(0, 1)


def flatten_steps(x: Float[Tensor, "T *P B E"]) -> Float[Tensor, "*P N E"]:
    """Return the rows of all steps for one product per member, N = T · B."""
    return x.flatten(0, 1) if x.dim() == 3 else x.transpose(0, 1).flatten(1, 2)


def unflatten_steps(rows: Float[Tensor, "*P N E"], steps: int) -> Float[Tensor, "T *P B E"]:
    """Invert `flatten_steps`."""
    return rows.unflatten(-2, (steps, -1)).movedim(-3, 0)


def previous_states(
    start: Float[Tensor, "*P B H"], states: Float[Tensor, "T *P B H"]
) -> Sequence[Float[Tensor, "*P B H"]]:
    """Return the state before each step."""
    return [start, *states.unbind(0)[:-1]]


def transpose(weight: Float[Tensor, "*P H G"]) -> Float[Tensor, "*P G H"]:
    """Return a contiguous Wᵀ, which a product at every step reads faster than a view."""
    return weight.mT.contiguous()


def product(
    a: Float[Tensor, "*P B H"], weight: Float[Tensor, "*P H G"], out: Float[Tensor, "*P B G"]
) -> Float[Tensor, "*P B G"]:
    """Out = a W; with members at half the cost of `torch.matmul` with `out`."""
    return (torch.mm if out.dim() == 2 else torch.bmm)(a, weight, out=out)


def add_product(
    out: Float[Tensor, "*P B G"], a: Float[Tensor, "*P B H"], weight: Float[Tensor, "*P H G"]
) -> Float[Tensor, "*P B G"]:
    """Add a W to `out`."""
    return out.addmm_(a, weight) if out.dim() == 2 else out.baddbmm_(a, weight)


def project_steps(
    x: Float[Tensor, "T *P B E"],
    weight: Float[Tensor, "*P E G"] | None,
    bias: Float[Tensor, "*P G"] | None,
    out: Float[Tensor, "T *P B G"],
) -> tuple[Float[Tensor, "*P B G"], ...]:
    """Write out_t = x_t W + b, weight or bias absent; return the steps of `out`."""
    if weight is None:
        _ = out.zero_() if bias is None else out.copy_(bias.unsqueeze(-2).expand_as(out))
    elif out.dim() == 3:
        rows, flat = flatten_steps(x), out.view(-1, out.shape[-1])
        if bias is None:
            product(rows, weight, flat)
        else:  # faster than torch.addmm with a bias
            add_product(flat.copy_(bias.unsqueeze(-2).expand_as(flat)), rows, weight)
    else:
        steps = unflatten_steps(flatten_steps(x) @ weight, len(x))
        _ = out.copy_(steps) if bias is None else torch.add(steps, bias.unsqueeze(-2), out=out)
    return out.unbind(0)


def product_over_steps(q: StepBuffer, d: StepBuffer) -> Float[Tensor, "*P H G"]:
    """Return Σ_t q_tᵀ d_t over q's steps, which are the last steps of d.

    With members, one product over all steps needs a copy of the rows. A batched product per step
    needs none, but its results must not be larger than its factors.
    """
    steps, members = q.tensor.shape[:-2], q.tensor.dim() > 3
    (rows, h), g = q.tensor.shape[-2:], d.tensor.shape[-1]
    if members and 2 * h * g <= rows * (h + g):
        last = d.tensor[-len(q.tensor) :]
        products = torch.bmm(q.tensor.flatten(0, 1).mT, last.flatten(0, 1))
        return products.unflatten(0, steps).sum(0)
    return q.rows.mT @ d.rows[..., -q.rows.shape[-2] :, :]


def sigmoid_backward(gradient: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """out = g ⊙ y ⊙ (1 − y), in one pass."""
    return torch.ops.aten.sigmoid_backward.grad_input(gradient, y, grad_input=out)


def tanh_backward(gradient: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """out = g ⊙ (1 − y²), in one pass."""
    return torch.ops.aten.tanh_backward.grad_input(gradient, y, grad_input=out)
