r"""Softmaxes over products with a table of vectors: their log-normalisers, log P of tokens.

    l_nv = Emb_v · y_n      log z_n = log Σ_v exp l_nv      log p_n = l_nw − log z_n,  w = w_n

    p_nv = exp(l_nv − log z_n)      ∂ log z_n / ∂y_n = Σ_v p_nv Emb_v
                                    ∂ log z_n / ∂Emb_v = p_nv y_n
    g_n = ∂L/∂(log p_n)             δ_nv = ∂L/∂l_nv = g_n ( [v = w_n] − p_nv )
                                    ∂L/∂y_n = Σ_v δ_nv Emb_v        ∂L/∂Emb_v = Σ_n δ_nv y_n

The naive formulas write (N, V) logits and save them for backward; log p passes over them about ten
times, each time through main memory. The kernels of CPUs (`kernels/cpu/tied_softmax.py`) and GPUs
(`kernels/gpu/tied_softmax.py`) compute logits in tiles that stay in the cache or on the chip,
and again backward. Other devices and types of numbers have the naive formulas.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.kernels.dispatch import (
    CustomFunction,
    as_arrays,
    has_gpu_kernels,
    has_product_kernels,
    run_kernel,
    token_error,
)
from lmzoo.types import Embeddings, Vectors

NAIVE_LIMIT = 1 << 20
"""The number of logits up to which the naive formula is used on a CPU."""


def log_normalisers(
    y: Vectors,
    table: Embeddings,
    naive_limit: int = NAIVE_LIMIT,
) -> Float[Tensor, "*N"]:
    """Return log Σ_v exp(table_v · y) for every vector of `y`."""
    on_gpu = _fits_gpu(y)
    limit = naive_limit
    if on_gpu:
        limit = 0
    # A small product is faster than a kernel, whose launch takes time.
    products = y.shape[:-1].numel() * len(table)
    is_small = products <= limit
    if is_small or not (on_gpu or has_product_kernels(y)):
        logits = y @ table.T
        return logits.logsumexp(-1)
    rows = y.reshape(-1, y.shape[-1])
    none = torch.empty(0, dtype=torch.int64, device=y.device)
    log_z = _TiedSoftmax.apply(rows, table, none)[0]
    return log_z.view(y.shape[:-1])


def tied_log_prob(
    y: Vectors,
    table: Embeddings,
    tokens: Int[Tensor, "*N"],
) -> Float[Tensor, "*N"]:
    """Return log softmax(table · y)_w for each token w.

    A w that is no token is an IndexError on a CPU, and NaN on a GPU.
    """
    if not (_fits_gpu(y) or has_product_kernels(y)):
        return naive_tied_log_prob(y, table, tokens)
    rows = y.reshape(-1, y.shape[-1])
    words = tokens.reshape(-1)
    log_p = _TiedSoftmax.apply(rows, table, words)[0]
    return log_p.view(tokens.shape)


def naive_tied_log_prob(
    y: Vectors,
    table: Embeddings,
    tokens: Int[Tensor, "*N"],
) -> Float[Tensor, "*N"]:
    """Compute `tied_log_prob` in torch operations."""
    logits = (y * table[tokens]).sum(-1)
    # Only the target's logits and the normalisers: no array of all logits in backward.
    return logits - log_normalisers(y, table)


def _fits_gpu(y: Tensor) -> bool:
    """Whether a GPU has kernels for vectors of this width."""
    if not has_gpu_kernels(y):
        return False
    from lmzoo.kernels.gpu.tied_softmax import TILES

    return y.shape[-1] <= max(TILES)


class _TiedSoftmax(CustomFunction):
    """(y, table, tokens), all or none with a member axis first -> (log p, log z, ∂ log p / ∂y).

    Without tokens, (0,), log z stands in place of log p. The third is empty on a CPU.
    """

    axes = 2

    @staticmethod
    def compute(y: Tensor, table: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        if has_gpu_kernels(y):
            from lmzoo.kernels.gpu import tied_softmax as gpu_kernels

            return gpu_kernels.forward(y, table, tokens)
        from lmzoo.kernels.cpu import tied_softmax as kernels

        log_p = y.new_empty(y.shape[:2])
        log_z = y.new_empty(y.shape[:2])
        arrays = as_arrays([y, table, tokens, log_p, log_z])
        # False: a kernel cannot raise an error, and would read other memory.
        if not run_kernel(kernels.forward, arrays):
            raise token_error(tokens, table.shape[1])
        # The slope is a result of the GPU's kernel only.
        slope = y.new_empty(len(y), 0)
        return log_p, log_z, slope

    @staticmethod
    def gradients(
        y: Tensor,
        g: Tensor,
        table: Tensor,
        tokens: Tensor,
        log_z: Tensor,
        slope: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the gradients of y and the table."""
        if has_gpu_kernels(y):
            from lmzoo.kernels.gpu import tied_softmax as gpu_kernels

            return gpu_kernels.backward(g, y, table, tokens, log_z, slope)
        from lmzoo.kernels.cpu import tied_softmax as kernels

        dy = y.new_empty(y.shape)
        # The kernel adds to the gradient of the table.
        dtable = table.new_zeros(table.shape)
        arrays = as_arrays([g, y, table, tokens, log_z, dy, dtable])
        run_kernel(kernels.backward, arrays)
        return dy, dtable
