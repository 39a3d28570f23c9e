r"""Rows of a table by token, and the gradient of the table; tensors have a member axis P.

    out_n = x_{w_n}          ∂L/∂x_v = Σ_{n : w_n = v} g_n

A program of the gradient owns some rows of the table and adds the positions in a fixed order, by a
product with a matrix of zeros and ones. Results are reproducible, which atomic additions are not.
If there is much to add, positions are sorted by their tokens, so that a program reads those of its
own rows only; otherwise it reads all, which is less work than to sort.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.gpu.blocks import load, numbers, program_int64
from lmzoo.kernels.gpu.launch import launch

NUMBERS = 2048
"""Numbers of a program that copies."""
SUMS = "tf32x3"
"""Precision of the sums, whatever that of a run's products is: they must not lose digits."""
SORTED = 2**30
"""Multiplications of a sum over all positions from which sorting is faster; on an H200, 0.1 ms."""
TOKENS = 16
"""Rows of the table that a program adds."""
BLOCKS = {
    False: (64, 32),
    True: (64, 64),
}
"""Positions added at a time and columns of a program, by whether positions are sorted."""


def take_rows(x: Tensor, tokens: Tensor) -> Tensor:
    """Return the rows (P, B, T, G) of contiguous x (P, V, G) at tokens (P, B, T)."""
    members, rows, steps = tokens.shape
    count = rows * steps
    width = x.shape[2]
    # A range in Triton is a power of two; the columns beyond the width are masked.
    columns = 1 << (width - 1).bit_length()
    # Rows of a program: as many as its numbers allow, one at least.
    block = max(1, NUMBERS // columns)
    out = x.new_empty(tokens.shape + (width,))
    grid = (-(-count // block), members)
    vocab = x.shape[1]
    sizes = (count, vocab, width, columns, block)
    tensors = (x, tokens, out)
    launch(_take, grid, tensors + strides(tokens) + sizes)
    return out


def add_rows(g: Tensor, tokens: Tensor, vocab: int) -> Tensor:
    """Return the sums (P, V, G) of the rows of g (P, .., G), contiguous, of tokens (P, B, T)."""
    members = len(g)
    width = g.shape[-1]
    count = tokens[0].numel()
    is_sorted = members * count * vocab * width >= SORTED
    positions, columns = BLOCKS[is_sorted]
    words = order = tokens
    if is_sorted:
        # Keys of 16 bits take a quarter of the passes of a radix sort.
        kind = torch.int32
        if vocab <= 2**15:
            kind = torch.int16
        keys = tokens.to(kind).reshape(members, count)
        # Stable, so that positions of one token are added in a fixed order.
        words, order = keys.sort(dim=1, stable=True)
    # Not zeros: the program that owns a row writes it, even if no position has its token.
    sums = g.new_empty(members, vocab, width)
    tiles = -(-vocab // TOKENS)
    blocks = -(-width // columns)
    tensors = (g, words, order, sums)
    sizes = (count, vocab, width)
    constants = (TOKENS, positions, columns, SUMS, is_sorted)
    arguments = tensors + strides(tokens) + sizes + constants
    launch(_add, (tiles, blocks, members), arguments)
    return sums


def strides(tokens: Tensor) -> tuple[int, int, int, int]:
    """Return T and the strides of members, sequences and steps of tokens (P, B, T)."""
    steps = tokens.shape[2]
    member, sequence, step = tokens.stride()
    return steps, member, sequence, step


@triton.jit
def token_at(tokens, p, n, N, T, SP, SB, ST):
    """Return the tokens at positions n of member p, −1 beyond the N positions."""
    sequence = n // T
    step = n % T
    at = p * SP + sequence * SB + step * ST
    # −1, which is no token, beyond the last position.
    return tl.load(tokens + at, n < N, -1)


@triton.jit
def _take(
    x,
    tokens,
    out,
    T,
    SP,
    SB,
    ST,
    N,
    V,
    G,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    p = program_int64(1)
    n = numbers(0, ROWS)
    i = tl.arange(0, COLUMNS)[None, :]
    word = token_at(tokens, p, n, N, T, SP, SB, ST)
    ok = (n[:, None] < N) & (i < G)
    source = p * V + word[:, None]
    target = p * N + n[:, None]
    row = load(x + source * G + i, ok)
    tl.store(out + target * G + i, row, ok)


@triton.jit
def first_at_least(word, words, N):
    """Return how many of N ascending tokens are less than this one."""
    low = tl.full((), 0, tl.int32)
    high = tl.full((), 0, tl.int32) + N
    while low < high:
        middle = (low + high) // 2
        found = tl.load(words + middle).to(tl.int32)
        less = found < word
        low = tl.where(less, middle + 1, low)
        high = tl.where(less, high, middle)
    return low


# No atomic additions: their order, and so the last digits, would differ between executions.
@triton.jit
def _add(
    g,
    words,
    order,
    sums,
    T,
    SP,
    SB,
    ST,
    N,
    V,
    G,
    TOKENS: tl.constexpr,
    POSITIONS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
    SORTED: tl.constexpr,
):
    p = program_int64(2)
    word = numbers(0, TOKENS)[:, None]
    i = numbers(1, COLUMNS)[None, :]
    total = tl.zeros((TOKENS, COLUMNS), tl.float32)
    first = 0
    last = N
    if SORTED:
        own_words = words + p * N
        least = tl.program_id(0) * TOKENS
        first = first_at_least(least, own_words, N)
        last = first_at_least(least + TOKENS, own_words, N)
    for begin in range(first, last, POSITIONS):
        k = begin + tl.arange(0, POSITIONS)
        if SORTED:
            found = tl.load(words + p * N + k, k < last, -1)
            n = tl.load(order + p * N + k, k < last, 0)
        else:
            found = token_at(words, p, k, N, T, SP, SB, ST)
            n = k
        # Row by row, 1 at the positions of its token: the product sums them.
        chosen = (found[None, :] == word).to(tl.float32)
        ok = (k[:, None] < last) & (i < G)
        position = p * N + n[:, None]
        rows = load(g + position * G + i, ok)
        total += tl.dot(chosen, rows, input_precision=PRECISION)
    row = p * V + word
    ok = (word < V) & (i < G)
    tl.store(sums + row * G + i, total, ok)
