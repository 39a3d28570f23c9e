"""Several affine maps of the same vectors as one product; for GPUs, where a launch costs time.

    [x W_1 + b_1 | x W_2 + b_2 | ..] = x [W_1 | W_2 | ..] + [b_1 | b_2 | ..]

Under `torch.func.vmap` torch would launch product, scaling and sum one by one.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import CustomFunction
from lmzoo.types import Vectors

PARTS = 10
"""Parts of the positions whose outer products are summed at the same time."""


def joint_affine(
    x: Vectors,
    weights: Sequence[Float[Tensor, "E _"]],
    biases: Sequence[Float[Tensor, "_"]],
) -> Float[Tensor, "*N G"]:
    """Return x W + b of all weights and biases, beside each other."""
    # One product for all weights: on a GPU several small ones wait for each other.
    weight = torch.cat(list(weights), -1)
    bias = torch.cat(list(biases), -1)
    rows = x.reshape(-1, x.shape[-1])
    y = _Affine.apply(rows, weight, bias)[0]
    return y.view(x.shape[:-1] + y.shape[-1:])


class _Affine(CustomFunction):
    """(x (N, E), W (E, G), b (G)), all or none with a member axis first -> (x W + b,)."""

    axes = 2

    @staticmethod
    def compute(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor]:
        # Product and sum in one launch; torch under `vmap` would make three.
        return (torch.baddbmm(bias[:, None], x, weight),)

    @staticmethod
    def gradients(
        x: Tensor,
        g: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> tuple[Tensor, ...]:
        del bias
        return g @ weight.mT, sum_outer(x, g), g.sum(1)


def sum_outer(
    x: Float[Tensor, "P N E"],
    g: Float[Tensor, "P N G"],
) -> Float[Tensor, "P E G"]:
    """Return Σ_n x_n g_nᵀ of each member.

    As one product, few programs of a GPU would each read all positions. So the positions are in
    up to `PARTS` parts, whose sums are added.
    """
    parts = PARTS
    # Equal parts, so that one batched product serves all.
    while x.shape[1] % parts:
        parts -= 1
    if parts == 1:
        return x.mT @ g
    members = len(x) * parts
    x = x.reshape(members, -1, x.shape[2])
    g = g.reshape(members, -1, g.shape[2])
    return (x.mT @ g).unflatten(0, (-1, parts)).sum(1)
