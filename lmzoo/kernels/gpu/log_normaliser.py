"""The kernels of `functional/tied_softmax.py`, for all pack members at once; torch multiplies.

Logits are computed in tiles of some words and every vector of every member, by one product of
torch. One launch adds a tile to the sums forward, and one turns it into weighted probabilities
backward. So the number of launches depends on the sizes of a member, not on how many there are.
"""

from collections.abc import Iterator
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.launch import launch

TILE = 1 << 22
"""Logits of a member in a tile; 16 MB."""
MIN_WORDS = 128
"""Words of a tile, at least."""
ROWS, WORDS = 4, 512
"""Vectors and words that a program adds at a time."""
BLOCK = 1024
"""Logits of a program that computes probabilities."""


def forward(y: Tensor, table: Tensor) -> Tensor:
    """Return log z (P, N) of vectors y (P, N, E) and the table (P, V, E)."""
    members, count, _ = y.shape
    top, total = y.new_full((members, count), -torch.inf), y.new_zeros(members, count)
    grid = (-(-count // ROWS), members)
    for words, logits in _tiles(y, table):
        torch.bmm(y, table[:, words].mT, out=logits)
        launch(_add, grid, logits, top, total, count, logits.shape[2], ROWS, WORDS)
    return total.log_().add_(top)


def backward(y: Tensor, table: Tensor, log_z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of y and the table; g (P, N) is that of log z."""
    dy, dtable = torch.empty_like(y), torch.empty_like(table)
    tensors = log_z.contiguous(), g.contiguous()
    for words, logits in _tiles(y, table):
        torch.bmm(y, table[:, words].mT, out=logits)
        grid = (-(-logits.numel() // BLOCK),)
        launch(_weigh, grid, logits, *tensors, logits.numel(), logits.shape[2], BLOCK)
        dy.baddbmm_(logits, table[:, words], beta=float(words.start > 0))
        dtable[:, words] = logits.mT @ y
    return dy, dtable


def _tiles(y: Tensor, table: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of the words, and memory for the logits (P, N, W) of each."""
    members, count, _ = y.shape
    vocab = table.shape[1]
    width = min(vocab, max(MIN_WORDS, TILE // count))
    buffer = y.new_empty(members * count * width)
    for begin in range(0, vocab, width):
        words = slice(begin, min(begin + width, vocab))
        shape = members, count, words.stop - begin
        yield words, buffer[: shape[0] * shape[1] * shape[2]].view(shape)


@triton.jit
@no_type_check
def _add(logits, top, total, N, W, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """Add exp(logits − top) to the total of every vector; top is the largest logit so far."""
    p = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    largest = tl.load(top + p * N + n, mask=n < N, other=0.0)
    amount = tl.load(total + p * N + n, mask=n < N, other=0.0)
    for begin in range(0, W, WORDS):
        w = begin + tl.arange(0, WORDS)[None, :]
        at, ok = (p * N + n[:, None]) * W + w, (n[:, None] < N) & (w < W)
        tile = tl.load(logits + at, mask=ok, other=-float("inf"))
        before, largest = largest, tl.maximum(largest, tl.max(tile, axis=1))
        amount = amount * tl.exp(before - largest) + tl.sum(tl.exp(tile - largest[:, None]), axis=1)
    tl.store(top + p * N + n, largest, mask=n < N)
    tl.store(total + p * N + n, amount, mask=n < N)


@triton.jit
@no_type_check
def _weigh(logits, log_z, g, N, W, BLOCK: tl.constexpr):
    """Replace the logits of a tile, N of them in rows of W, by g exp(logits − log z)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logits + i, mask=i < N, other=0.0)
    normaliser = tl.load(log_z + i // W, mask=i < N, other=0.0)
    upstream = tl.load(g + i // W, mask=i < N, other=0.0)
    tl.store(logits + i, upstream * tl.exp(logit - normaliser), mask=i < N)
