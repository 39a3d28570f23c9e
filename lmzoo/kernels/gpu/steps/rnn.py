"""The steps of the vanilla recurrent network."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import activate, activation_gradient
from lmzoo.kernels.gpu.steps.blocks import launch, position, step_before, step_product


def forward(
    activation: str, precision: str, projected: Tensor, weight: Tensor, start: Tensor
) -> list[Tensor]:
    """Return the states."""
    states = torch.empty_like(projected)
    for t in range(states.shape[2]):
        before, stride = step_before(start, states, t)
        args = projected[:, :, t], before, weight, states[:, :, t], stride
        launch(_forward, states, *args, flags=[activation], precision=precision)
    return [states]


def backward(
    activation: str, precision: str, upstream: Tensor, weight: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the projected inputs and of start."""
    deltas, last = torch.empty_like(states), states.shape[2] - 1
    for t in range(last, -1, -1):
        after = deltas[:, :, min(t + 1, last)]
        args = upstream[:, :, t], after, weight, states[:, :, t], deltas[:, :, t]
        launch(_backward, states, *args, flags=[activation, t == last], precision=precision)
    return deltas, deltas[:, :, 0] @ weight.mT


@triton.jit
@no_type_check
def _forward(
    projected, before, weight, states, S, B, T, H, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    at = row * T * H + j
    a = tl.load(projected + at, mask=ok, other=0.0)
    a += step_product(
        before, S, row, exists, weight + p * H * H, H, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION
    )
    tl.store(states + at, activate(a, ACTIVATION), mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, after, weight, states, deltas, B, T, H, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr, ACTIVATION: tl.constexpr, LAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    at = row * T * H + j
    delta = tl.load(upstream + at, mask=ok, other=0.0)
    if not LAST:
        delta += step_product(
            after, T * H, row, exists, weight + p * H * H, 1, H, j, H, H, ROWS, COLUMNS, BLOCK,
            PRECISION,
        )  # fmt: skip
    h = tl.load(states + at, mask=ok, other=0.0)
    tl.store(deltas + at, activation_gradient(delta, h, ACTIVATION), mask=ok)
