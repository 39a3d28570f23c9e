r"""Log-normalisers of softmaxes over the vocabulary, one per vector.

    log_normalisers(y, Emb)[n] = log z_n = log Σ_v exp( Emb_v · y_n )

    ∂ log z_n / ∂ y_n   = Σ_v p_nv Emb_v          p_nv = exp( Emb_v · y_n − log z_n )
    ∂ log z_n / ∂ Emb_v = p_nv y_n

The naive formula writes an N x V matrix of logits and saves it for backward. For vocabularies of
thousands of words it spends most of its time on that memory. Here logits are computed in tiles that
fit in the cache, and computed again backward.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.dispatch import has_gpu_kernels
from lmzoo.types import Embeddings

NAIVE_LIMIT = 1 << 20
"""The number of logits up to which the naive formula is faster on a CPU."""
GPU_NAIVE_LIMIT = 1 << 16
"""The same for the kernels of a GPU. The naive formula moves the logits about twice as often."""

TILE = {"cpu": (512, 1024)}
"""Vectors and words in a tile; 2 MB of logits are the fastest on a CPU."""
LARGE_TILE = (8192, 16384)
"""The tile on an accelerator without kernels, which is faster with few large products."""


def log_normalisers(
    y: Float[Tensor, "*N E"], table: Embeddings, naive_limit: int = NAIVE_LIMIT
) -> Float[Tensor, "*N"]:
    """Return log Σ_v exp(table_v · y) for every vector of `y`."""
    if has_gpu_kernels(y):
        naive_limit = min(naive_limit, GPU_NAIVE_LIMIT)
    if y.shape[:-1].numel() * len(table) <= naive_limit:
        return torch.logsumexp(y @ table.T, dim=-1)
    rows = y.reshape(-1, y.shape[-1])
    return _LogNormalisers.apply(rows, table)[0].view(y.shape[:-1])


class _LogNormalisers(CustomFunction):
    """(y, table), both or neither with a member axis first -> (log z,)."""

    axes = 2

    @staticmethod
    def compute(y: Tensor, table: Tensor) -> tuple[Tensor]:
        if has_gpu_kernels(y):
            from lmzoo.kernels.gpu import log_normaliser as kernels

            return (kernels.forward(y, table),)
        log_z = y.new_empty(y.shape[:-1])
        for member in zip(y, table, log_z, strict=True):  # members are large enough one by one
            _write_log_z(*member)
        return (log_z,)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _LogNormalisersBackward.apply(*ctx.saved_tensors, *upstream)


class _LogNormalisersBackward(Backward):
    """(y, table, log z, ∂L/∂log z) -> gradients of y and the table."""

    axes = 2

    @staticmethod
    def compute(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        if has_gpu_kernels(tensors[0]):
            from lmzoo.kernels.gpu import log_normaliser as kernels

            return kernels.backward(*tensors)
        y_grad, table_grad = (torch.zeros_like(tensor) for tensor in tensors[:2])
        for member in zip(*tensors, y_grad, table_grad, strict=True):
            _add_gradients(*member)
        return y_grad, table_grad


def _write_log_z(y: Tensor, table: Tensor, log_z: Tensor) -> None:
    height, width, compute_logits = _tile(y, table)
    for rows in _slices(len(y), height):
        top, total = log_z[rows].fill_(-torch.inf), torch.zeros_like(log_z[rows])
        for words in _slices(len(table), width):
            logits = compute_logits(y[rows], table[words])
            previous, top = top, torch.maximum(top, logits.amax(1))
            new = logits.sub_(top[:, None]).exp_().sum(1)
            total = total * (previous - top).exp_() + new
        log_z[rows] = total.log_() + top


def _add_gradients(
    y: Tensor, table: Tensor, log_z: Tensor, upstream: Tensor, y_grad: Tensor, table_grad: Tensor
) -> None:
    """Add the gradients of one member to zeros."""
    height, width, compute_logits = _tile(y, table)
    for rows in _slices(len(y), height):
        weighted, y_grad_rows = upstream[rows, None] * y[rows], y_grad[rows]
        for words in _slices(len(table), width):
            p = compute_logits(y[rows], table[words]).sub_(log_z[rows, None]).exp_()
            y_grad_rows.addmm_(p, table[words])
            table_grad[words].addmm_(p.T, weighted)
    y_grad *= upstream[:, None]


def _tile(y: Tensor, table: Tensor) -> tuple[int, int, Callable[[Tensor, Tensor], Tensor]]:
    """Return the tile's size, and a function that computes its logits into one buffer."""
    height, width = TILE.get(y.device.type, LARGE_TILE)
    buffer = y.new_empty(min(height, len(y)) * min(width, len(table)))

    def logits(vectors: Tensor, words: Tensor) -> Tensor:
        shape = len(vectors), len(words)
        return torch.mm(vectors, words.T, out=buffer[: shape[0] * shape[1]].view(shape))

    return height, width, logits


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, count)) for i in range(0, count, size))
