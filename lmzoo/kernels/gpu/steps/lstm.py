"""The steps of long short-term memory."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import tanh
from lmzoo.kernels.gpu.steps.blocks import launch, position, step_before, step_product


def forward(
    forget: str, precision: str, projected: Tensor, weight: Tensor, start: Tensor
) -> list[Tensor]:
    """Return the states, the gates and the memory."""
    states = projected.new_empty(*projected.shape[:-1], start.shape[-1] // 2)
    gates, memory = torch.empty_like(projected), torch.empty_like(states)
    h_0, c_0 = start.chunk(2, dim=-1)
    for t in range(states.shape[2]):
        (h, stride), (c, _) = step_before(h_0, states, t), step_before(c_0, memory, t)
        written = states[:, :, t], gates[:, :, t], memory[:, :, t]
        args = projected[:, :, t], h, c, weight, *written, stride
        launch(_forward, states, *args, flags=[forget], precision=precision)
    return [states, gates, memory]


def backward(
    forget: str,
    precision: str,
    upstream: Tensor,
    weight: Tensor,
    start: Tensor,
    gates: Tensor,
    memory: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the projected inputs and of start."""
    deltas, last = torch.empty_like(gates), gates.shape[2] - 1
    c_0 = start.chunk(2, dim=-1)[1]
    gamma = torch.empty_like(c_0)
    for t in range(last, -1, -1):
        after = deltas[:, :, min(t + 1, last)]
        c, stride = step_before(c_0, memory, t)
        saved = gates[:, :, t], memory[:, :, t]
        args = upstream[:, :, t], after, c, weight, *saved, deltas[:, :, t], gamma, stride
        launch(_backward, memory, *args, flags=[forget, t == last], precision=precision)
    return deltas, torch.cat([deltas[:, :, 0] @ weight.mT, gamma], dim=-1)


@triton.jit
@no_type_check
def _forward(
    projected, h, c, weight, states, gates, memory, S, B, T, H, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, FORGET: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    G = 4 * H if FORGET == "gate" else 3 * H
    w = weight + p * H * G
    at = row * T * G + j
    a = tl.load(projected + at, mask=ok, other=0.0)
    a += step_product(h, S, row, exists, w, G, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION)
    i = tl.sigmoid(a)
    a = tl.load(projected + at + G - 2 * H, mask=ok, other=0.0)
    a += step_product(
        h, S, row, exists, w + G - 2 * H, G, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION
    )
    g = tanh(a)
    a = tl.load(projected + at + G - H, mask=ok, other=0.0)
    a += step_product(h, S, row, exists, w + G - H, G, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION)
    o = tl.sigmoid(a)
    new = i * g
    before = tl.load(c + row * S + j, mask=ok, other=0.0)
    if FORGET == "gate":
        a = tl.load(projected + at + H, mask=ok, other=0.0)
        a += step_product(h, S, row, exists, w + H, G, 1, j, H, H, ROWS, COLUMNS, BLOCK, PRECISION)
        f = tl.sigmoid(a)
        tl.store(gates + at + H, f, mask=ok)
        new += f * before
    elif FORGET == "coupled":
        new += (1 - i) * before
    else:
        new += before
    tl.store(gates + at, i, mask=ok)
    tl.store(gates + at + G - 2 * H, g, mask=ok)
    tl.store(gates + at + G - H, o, mask=ok)
    at = row * T * H + j
    tl.store(memory + at, new, mask=ok)
    tl.store(states + at, o * tanh(new), mask=ok)


@triton.jit
@no_type_check
def _backward(
    upstream, after, c, weight, gates, memory, deltas, carried, S, B, T, H, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, FORGET: tl.constexpr, LAST: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    p, row, exists, j, ok = position(B, H, ROWS, COLUMNS)
    G = 4 * H if FORGET == "gate" else 3 * H
    at = row * T * H + j
    delta = tl.load(upstream + at, mask=ok, other=0.0)
    gamma = tl.zeros((ROWS, COLUMNS), tl.float32)
    if not LAST:
        delta += step_product(
            after, T * G, row, exists, weight + p * H * G, 1, G, j, G, H, ROWS, COLUMNS, BLOCK,
            PRECISION,
        )  # fmt: skip
        gamma = tl.load(carried + row * H + j, mask=ok, other=0.0)
    q = tanh(tl.load(memory + at, mask=ok, other=0.0))
    before = tl.load(c + row * S + j, mask=ok, other=0.0)
    at = row * T * G + j
    i = tl.load(gates + at, mask=ok, other=0.0)
    g = tl.load(gates + at + G - 2 * H, mask=ok, other=0.0)
    o = tl.load(gates + at + G - H, mask=ok, other=0.0)
    gamma += delta * o * (1 - q * q)
    tl.store(deltas + at + G - H, delta * q * o * (1 - o), mask=ok)
    tl.store(deltas + at + G - 2 * H, gamma * i * (1 - g * g), mask=ok)
    if FORGET == "coupled":
        tl.store(deltas + at, gamma * (g - before) * i * (1 - i), mask=ok)
        gamma = gamma * (1 - i)
    else:
        tl.store(deltas + at, gamma * g * i * (1 - i), mask=ok)
    if FORGET == "gate":
        f = tl.load(gates + at + H, mask=ok, other=0.0)
        tl.store(deltas + at + H, gamma * before * f * (1 - f), mask=ok)
        gamma = gamma * f
    tl.store(carried + row * H + j, gamma, mask=ok)
