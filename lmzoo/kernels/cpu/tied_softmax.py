"""The kernels of `functional/tied_softmax.py`, in their symbols l, g, y, δ.

A kernel processes a block of positions of one pack member at a time. Its logits stay in the cache
from their product to the last use of their softmax; backward, they become δ there. Without tokens
(P, 0) the result is log z alone, and g its gradient.
"""

from math import log

import numpy as np

from lmzoo.kernels.cpu import elementwise
from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import row_max

# The logits of a block stay in the cache from their product to their last use.
ROWS = 64
LOGITS = 2**19
"""Most positions of a block, and about the logits of a block of a large vocabulary: 2 MB."""


# Fewer rows of a large vocabulary, so that their logits still fit into the cache.
@compiled
def _rows(words):
    return max(8, min(ROWS, LOGITS // words))


@compiled
def forward(y, table, tokens, log_p, log_z):
    """Write log p and log z; return False at a token outside the table."""
    members, positions = log_z.shape
    words = table.shape[1]
    rows = _rows(table.shape[1])
    buffer = np.empty((rows, words), y.dtype)
    largest = np.empty(rows, y.dtype)
    for i in range(members):
        for begin in range(0, positions, rows):
            end = min(begin + rows, positions)
            block = buffer[: end - begin]
            product_transposed(y[i, begin:end], table[i], block, 0)
            # Before any exponential: e^(l − max) cannot overflow.
            row_max(block, largest)
            for n in range(len(block)):
                logits = block[n]
                top = largest[n]
                total = block.dtype.type(0)
                for v in range(words):
                    total += elementwise.exp(logits[v] - top)
                log_z[i, begin + n] = top + log(total)
                if tokens.size:
                    w = tokens[i, begin + n]
                    if not 0 <= w < words:
                        return False
                    log_p[i, begin + n] = logits[w] - log_z[i, begin + n]
                else:
                    log_p[i, begin + n] = log_z[i, begin + n]
    return True


@compiled
def backward(g, y, table, tokens, log_z, dy, dtable):
    """Write dy; add to dtable."""
    members, positions = log_z.shape
    rows = _rows(table.shape[1])
    # log p has −log z; without tokens log z itself is the result.
    sign = y.dtype.type(-1 if tokens.size else 1)
    buffer = np.empty((rows, table.shape[1]), y.dtype)
    for i in range(members):
        for begin in range(0, positions, rows):
            end = min(begin + rows, positions)
            d = buffer[: end - begin]
            y_block = y[i, begin:end]
            product_transposed(y_block, table[i], d, 0)
            for n in range(len(d)):
                d_n = d[n]
                g_n = g[i, begin + n]
                z = log_z[i, begin + n]
                # The logits become δ in place.
                for v in range(len(d_n)):
                    d_n[v] = sign * g_n * elementwise.exp(d_n[v] - z)
                if tokens.size:
                    d_n[tokens[i, begin + n]] += g_n
            product(d, table[i], dy[i, begin:end], 0)
            add_outer(d, y_block, dtable[i])
