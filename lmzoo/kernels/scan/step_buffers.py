"""What a sweep writes at every step, and the gradient of a weight as a sum over steps.

Σ_t q_tᵀ d_t        d_t = ∂L/∂a_t, a_t = q_t W + b
"""

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.scan.products import side_by_side


class Steps:
    """What a sweep writes at every step, (T, *P, B, G)."""

    def __init__(self, every: Float[Tensor, "T *P B G"]) -> None:
        self.every = every

    def columns(self, begin: int, end: int) -> "Steps":
        """Some of the columns."""
        return Steps(self.every[..., begin:end])

    @cached_property
    def at(self) -> tuple[Float[Tensor, "*P B G"], ...]:
        """Where each step is: an index every time would cost as much as a small product."""
        return self.every.unbind(0)

    @cached_property
    def rows(self) -> Float[Tensor, "*P N G"]:
        """All steps' rows side by side."""
        return side_by_side(self.every)


def product_of_all(q: Steps, d: Steps) -> Float[Tensor, "*P H G"]:
    """Σ_t q_tᵀ d_t over q's steps, which are d's last ones.

    Members' rows have to be copied for one product of all steps. So there it is one a step, all
    asked for at once, unless these were larger than what they are made of.
    """
    steps, members = q.every.shape[:-2], q.every.dim() > 3
    (rows, h), g = q.every.shape[-2:], d.every.shape[-1]
    if members and 2 * h * g <= rows * (h + g):
        late = d.every[-len(q.every) :]
        products = torch.bmm(q.every.flatten(0, 1).mT, late.flatten(0, 1))
        return products.unflatten(0, steps).sum(0)
    return q.rows.mT @ d.rows[..., -q.rows.shape[-2] :, :]
