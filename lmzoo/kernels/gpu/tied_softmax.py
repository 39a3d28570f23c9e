"""The kernels of `functional/tied_softmax.py`, in its symbols, for all pack members at once.

    c_n = Σ_v p_nv Emb_v                ∂L/∂y_n = g_n ( Emb_w − c_n )

Logits exist in tiles on the chip only. Forward, a program adds the tiles of some vectors, and c
with them, as attention to the table does (Dao et al. 2022, arXiv:2205.14135); so the gradient of y
needs no logits. Backward, a program computes the logits of some words again, and adds δ y of its
part of the vectors. Without tokens (P, 0) the result is log z alone, and ∂L/∂y_n = g_n c_n.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from lmzoo.kernels.device import Precision, current_precision
from lmzoo.kernels.gpu.blocks import load, numbers, program_int64
from lmzoo.kernels.gpu.launch import launch
from lmzoo.kernels.gpu.scan import padded

TILES = {
    32: (64, 64, 4),
    64: (64, 64, 4),
    128: (64, 32, 4),
}
"""Widest vectors -> vectors and words of a tile, and warps: the fastest of eight on an H200."""
PROGRAMS = 528
"""Programs that fill a GPU: four for each of its 132 processors."""


def forward(
    y: Tensor,
    table: Tensor,
    tokens: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p (P, N), log z (P, N) and ∂ log p_n / ∂y_n (P, N, E); without tokens of log z."""
    members, count, width = y.shape
    log_p = y.new_empty(y.shape[:2])
    log_z = y.new_empty(y.shape[:2])
    # Kept, so that the gradient of y needs no logits.
    slope = y.new_empty(y.shape)
    has_tokens = tokens.shape[1] > 0
    chosen = constants(width, has_tokens=has_tokens)
    blocks = -(-count // chosen["ROWS"])
    table, stride = in_place(table)
    read = (y.contiguous(), table, stride, tokens.contiguous())
    written = (log_p, log_z, slope)
    sizes = (count, table.shape[1], width)
    launch(_forward, (blocks, members), read + written + sizes, **chosen)
    return written


def backward(
    g: Tensor,
    y: Tensor,
    table: Tensor,
    tokens: Tensor,
    log_z: Tensor,
    slope: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of y and the table; g (P, N) is that of the first result."""
    members, count, width = y.shape
    vocab = table.shape[1]
    has_tokens = tokens.shape[1] > 0
    chosen = constants(width, has_tokens=has_tokens)
    tiles = -(-vocab // chosen["WORDS"])
    # Parts of the vectors, so that a small vocabulary fills the GPU, too.
    blocks = -(-count // chosen["ROWS"])
    wanted = PROGRAMS // (tiles * members)
    parts = max(1, min(blocks, wanted))
    dy = y.new_empty(y.shape)
    # Each part has sums of its own: atomic additions would not be reproducible.
    sums = y.new_empty(members, parts, vocab, width)
    table, stride = in_place(table)
    vectors = (g.contiguous(), y.contiguous())
    read = vectors + (table, stride, tokens.contiguous())
    stored = (log_z.contiguous(), slope.contiguous())
    rest = (dy, sums, count, vocab, width)
    grid = (tiles, parts, members)
    launch(_backward, grid, read + stored + rest, **chosen)
    if parts == 1:
        return dy, sums[:, 0]
    return dy, sums.sum(1)


def in_place(table: Tensor) -> tuple[Tensor, int]:
    """Return the table and the stride of its members, whose own rows are contiguous."""
    # In a pack a table is a part of one matrix of parameters: only its stride differs.
    if not table[0].is_contiguous():
        table = table.contiguous()
    return table, table.stride(0)


def constants(width: int, *, has_tokens: bool) -> dict[str, Any]:
    """Return the constants of both kernels, and the options of their launches, at this width."""
    fitting = [tile for widest, tile in TILES.items() if width <= widest]
    rows, words, warps = fitting[0]
    # Logits are exponentiated: bfloat16 has too few digits for them.
    precision = "tf32"
    if current_precision() is Precision.TF32X3:
        precision = "tf32x3"
    return {
        "TOKENS": has_tokens,
        "COLUMNS": padded(width),
        "ROWS": rows,
        "WORDS": words,
        "PRECISION": precision,
        "num_warps": warps,
        "num_stages": 1,
    }


# One pass over the words: the sums are scaled anew whenever a larger logit comes.
@triton.jit
def _forward(
    y,
    table,
    S,
    tokens,
    log_p,
    log_z,
    slope,
    N,
    V,
    E,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    p = program_int64(1)
    n = numbers(0, ROWS)
    i = tl.arange(0, COLUMNS)[None, :]
    at = (p * N + n[:, None]) * E + i
    ok = (n[:, None] < N) & (i < E)
    vectors = load(y + at, ok)
    word = tl.zeros((ROWS,), tl.int64)
    if TOKENS:
        word = tl.load(tokens + p * N + n, n < N, 0)
    score = tl.zeros((ROWS,), tl.float32)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    c = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, V, WORDS):
        v = begin + tl.arange(0, WORDS)
        own = (v[:, None] < V) & (i < E)
        place = p * S + v[:, None] * E
        rows = load(table + place + i, own)
        logits = tl.dot(vectors, tl.trans(rows), input_precision=PRECISION)
        if TOKENS:
            is_word = v[None, :] == word[:, None]
            score += tl.sum(tl.where(is_word, logits, 0.0), 1)
        # Words beyond the vocabulary have no probability.
        logits = tl.where(v[None, :] < V, logits, -float("inf"))
        before = top
        highest = tl.max(logits, 1)
        top = tl.maximum(top, highest)
        weights = tl.exp(logits - top[:, None])
        # What was summed relative to a smaller maximum is made relative to this one.
        scale = tl.exp(before - top)
        total = total * scale + tl.sum(weights, 1)
        mean = tl.dot(weights, rows, input_precision=PRECISION)
        c = c * scale[:, None] + mean
    z = top + tl.log(total)
    tl.store(log_z + p * N + n, z, n < N)
    c = c / total[:, None]
    result = z
    if TOKENS:
        known = (word >= 0) & (word < V)
        result = tl.where(known, score - z, float("nan"))
        own = ok & known[:, None]
        place = p * S + word[:, None] * E
        c = load(table + place + i, own) - c
    tl.store(log_p + p * N + n, result, n < N)
    tl.store(slope + at, c, ok)


# The logits are computed again, because they never leave the chip.
@triton.jit
def _backward(
    g,
    y,
    table,
    S,
    tokens,
    log_z,
    slope,
    dy,
    sums,
    N,
    V,
    E,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    part = tl.program_id(1)
    p = program_int64(2)
    parts = tl.num_programs(1)
    v = program_int64(0) * WORDS + tl.arange(0, WORDS)
    i = tl.arange(0, COLUMNS)[None, :]
    own = (v[:, None] < V) & (i < E)
    place = p * S + v[:, None] * E
    rows = tl.trans(load(table + place + i, own))
    total = tl.zeros((WORDS, COLUMNS), tl.float32)
    for begin in range(part * ROWS, N, parts * ROWS):
        n = begin + tl.arange(0, ROWS)
        ok = n < N
        at = (p * N + n[:, None]) * E + i
        inside = ok[:, None] & (i < E)
        vectors = load(y + at, inside)
        upstream = load(g + p * N + n, ok)
        # Programs of other words would write the same gradient of y.
        if tl.program_id(0) == 0:
            own_slope = load(slope + at, inside)
            gradient = upstream[:, None] * own_slope
            tl.store(dy + at, gradient, inside)
        z = load(log_z + p * N + n, ok)
        logits = tl.dot(vectors, rows, input_precision=PRECISION)
        delta = tl.exp(logits - z[:, None])
        if TOKENS:
            word = tl.load(tokens + p * N + n, ok, -1)
            is_word = v[None, :] == word[:, None]
            delta = tl.where(is_word, 1.0, 0.0) - delta
        delta = delta * upstream[:, None]
        total += tl.dot(tl.trans(delta), vectors, input_precision=PRECISION)
    own_part = p * parts + part
    row = own_part * V + v[:, None]
    tl.store(sums + row * E + i, total, own)
