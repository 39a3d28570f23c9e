r"""Log-normalisers of softmaxes over the vocabulary, one per vector.

    log_normalisers(y, Emb)[n] = log z_n = log Σ_v exp( Emb_v · y_n )

    ∂ log z_n / ∂ y_n   = Σ_v p_nv Emb_v          p_nv = exp( Emb_v · y_n − log z_n )
    ∂ log z_n / ∂ Emb_v = p_nv y_n

What a target's score needs of all other words. The plain formula writes an N x V array
and keeps it for the way back; at some thousand words most of its time is spent on that
memory. Here logits are made a tile at a time, where they fit in the cache, and made
again on the way back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.members import mapped, with_members
from lmzoo.types import Embeddings

PLAIN = 1 << 20
"""Logits up to which the plain formula is faster."""

TILE = {"cpu": (512, 1024)}
"""Vectors and words met at a time. Measured: 2 MB is best on a CPU."""
LARGE = (8192, 16384)
"""The same on an accelerator, which wants few large products."""


def log_normalisers(
    y: Float[Tensor, "*N E"], table: Embeddings, plain: int = PLAIN
) -> Float[Tensor, "*N"]:
    """Log Σ_v exp(table_v · y) for every vector of `y`."""
    if y.shape[:-1].numel() * len(table) <= plain:
        return torch.logsumexp(y @ table.T, dim=-1)
    rows = y.reshape(-1, y.shape[-1])
    return _LogNormalisers.apply(rows, table)[0].view(y.shape[:-1])


class _LogNormalisers(CustomFunction):
    """(y, table), each with members first or none -> (log z,)."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        return with_members(_filled, given, axes=2)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _Gradients.apply(*ctx.saved_tensors, *upstream)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Tensor) -> Any:
        return mapped(_LogNormalisers, info.batch_size, in_dims, given, axes=2)


class _Gradients(Backward):
    """(y, table, log z, ∂L/∂log z) -> gradients of y and the table."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        return with_members(_gradients, given, axes=2)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Tensor) -> Any:
        return mapped(_Gradients, info.batch_size, in_dims, given, axes=2)


def _filled(y: Tensor, table: Tensor) -> tuple[Tensor]:
    log_z = y.new_empty(y.shape[:-1])
    for one in zip(y, table, log_z, strict=True):  # each is large enough alone
        _fill(*one)
    return (log_z,)


def _gradients(*given: Tensor) -> tuple[Tensor, Tensor]:
    to_y, to_table = (torch.zeros_like(one) for one in given[:2])
    for one in zip(*given, to_y, to_table, strict=True):
        _add_gradients(*one)
    return to_y, to_table


def _fill(y: Tensor, table: Tensor, log_z: Tensor) -> None:
    """One member's log z."""
    height, width, logits_of = _tile(y, table)
    for rows in _cuts(len(y), height):
        top, total = log_z[rows].fill_(-torch.inf), torch.zeros_like(log_z[rows])
        for words in _cuts(len(table), width):
            logits = logits_of(y[rows], table[words])
            before, top = top, torch.maximum(top, logits.amax(1))
            new = logits.sub_(top[:, None]).exp_().sum(1)
            total = total * (before - top).exp_() + new
        log_z[rows] = total.log_() + top


def _add_gradients(
    y: Tensor, table: Tensor, log_z: Tensor, slope: Tensor, to_y: Tensor, to_table: Tensor
) -> None:
    """One member's gradients."""
    height, width, logits_of = _tile(y, table)
    for rows in _cuts(len(y), height):
        weighted, own = slope[rows, None] * y[rows], to_y[rows]
        for words in _cuts(len(table), width):
            p = logits_of(y[rows], table[words]).sub_(log_z[rows, None]).exp_()
            own.addmm_(p, table[words])
            to_table[words].addmm_(p.T, weighted)
    to_y *= slope[:, None]


def _tile(y: Tensor, table: Tensor) -> tuple[int, int, Callable[[Tensor, Tensor], Tensor]]:
    """How many vectors and words are met at a time, and their logits, in one place."""
    height, width = TILE.get(y.device.type, LARGE)
    room = y.new_empty(min(height, len(y)) * min(width, len(table)))

    def logits(vectors: Tensor, words: Tensor) -> Tensor:
        shape = len(vectors), len(words)
        return torch.mm(vectors, words.T, out=room[: shape[0] * shape[1]].view(shape))

    return height, width, logits


def _cuts(count: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, count)) for i in range(0, count, size))
