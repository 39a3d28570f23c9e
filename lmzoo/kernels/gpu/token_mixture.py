"""The kernels of `functional/token_mixture.py`, in its symbols a, s, r, g, y and δ, in log space.

    log p_n = LSE_k(a_nk + s_vk) − LSE_k a_nk

A program computes some positions of one pack member from their logits. Backward, π and r are
computed again. The products with the gate's weight are torch's, the sums over positions are those
of `rows.py`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.affine import sum_outer
from lmzoo.kernels.gpu.blocks import load, numbers, program_int64
from lmzoo.kernels.gpu.launch import launch
from lmzoo.kernels.gpu.rows import NUMBERS, add_rows, strides, token_at


def forward(
    y: Tensor, weight: Tensor, bias: Tensor, s: Tensor, tokens: Tensor
) -> tuple[Tensor, ...]:
    """Return log p of tokens (P, B, T) and the logits a (P, N, K), N = B T."""
    # Kept for backward, which would need the product again.
    a = torch.baddbmm(bias[:, None], y, weight.mT)
    out = a.new_empty(tokens.shape)
    tensors = (a, s.contiguous(), tokens, out)
    _launch(_forward, tensors, a, tokens, s.shape[1])
    return out, a


def backward(
    g: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    s: Tensor,
    tokens: Tensor,
    a: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of y, the gate's weight and bias, and s."""
    delta = torch.empty_like(a)
    weighted = torch.empty_like(a)
    tensors = (g.contiguous(), a, s.contiguous(), tokens, delta, weighted)
    vocab = s.shape[1]
    _launch(_backward, tensors, a, tokens, vocab)
    # In a fixed order: atomic additions would not be reproducible.
    ds = add_rows(weighted, tokens, vocab)
    dy = delta @ weight
    dweight = sum_outer(delta, y)
    return dy, dweight, delta.sum(1), ds


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    a: Tensor,
    tokens: Tensor,
    vocab: int,
):
    """Launch a kernel of all positions, whose logits are a (P, N, K)."""
    members, positions, components = a.shape
    # A range in Triton is a power of two.
    columns = 1 << (components - 1).bit_length()
    block = max(1, NUMBERS // columns)
    grid = (-(-positions // block), members)
    sizes = (positions, vocab, components, columns, block)
    launch(kernel, grid, tensors + strides(tokens) + sizes)


@triton.jit
def _forward(
    a,
    s,
    tokens,
    out,
    T,
    SP,
    SB,
    ST,
    N,
    V,
    K,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    p = program_int64(1)
    n = numbers(0, ROWS)
    word = token_at(tokens, p, n, N, T, SP, SB, ST)
    logits, joint = _logits(a, s, word, p, n, N, V, K, COLUMNS)
    # Two maxima: the joint logits may be −∞ where those of the gate are not.
    top = tl.max(logits, 1)
    joint_top = largest(joint)
    weights = tl.exp(logits - top[:, None])
    total = tl.sum(weights, 1)
    shares = tl.exp(joint - joint_top[:, None])
    mixed = tl.sum(shares, 1)
    log_p = tl.log(mixed) + joint_top - tl.log(total) - top
    tl.store(out + p * N + n, log_p, n < N)


# Weights and posteriors are computed again from the logits.
@triton.jit
def _backward(
    g,
    a,
    s,
    tokens,
    delta,
    weighted,
    T,
    SP,
    SB,
    ST,
    N,
    V,
    K,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    p = program_int64(1)
    n = numbers(0, ROWS)
    word = token_at(tokens, p, n, N, T, SP, SB, ST)
    logits, joint = _logits(a, s, word, p, n, N, V, K, COLUMNS)
    top = tl.max(logits, 1)
    pi = tl.exp(logits - top[:, None])
    pi = pi / tl.sum(pi, 1)[:, None]
    joint_top = largest(joint)
    r = tl.exp(joint - joint_top[:, None])
    r = r / tl.sum(r, 1)[:, None]
    upstream = load(g + p * N + n, n < N)[:, None]
    i = tl.arange(0, COLUMNS)[None, :]
    at = (p * N + n[:, None]) * K + i
    ok = (n[:, None] < N) & (i < K)
    tl.store(delta + at, upstream * (r - pi), ok)
    tl.store(weighted + at, upstream * r, ok)


@triton.jit
def _logits(a, s, word, p, n, N, V, K, COLUMNS: tl.constexpr):
    """Return a_n and a_n + s_v, −∞ beyond the components."""
    i = tl.arange(0, COLUMNS)[None, :]
    ok = (n[:, None] < N) & (i < K)
    position = p * N + n[:, None]
    logits = load(a + position * K + i, ok)
    row = p * V + word[:, None]
    scores = load(s + row * K + i, ok)
    logits = tl.where(i < K, logits, -float("inf"))
    return logits, logits + scores


@triton.jit
def largest(joint):
    """Return the largest number of every row, or 0 if all are −∞: a token without probability."""
    top = tl.max(joint, 1)
    return tl.where(top == -float("inf"), 0.0, top)
