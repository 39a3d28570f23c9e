r"""Log-normalisers of softmaxes over the vocabulary, one per vector.

    log_normalisers(y, Emb)[n] = log z_n = log Σ_v exp( Emb_v · y_n )

    ∂ log z_n / ∂ y_n   = Σ_v p_nv Emb_v          p_nv = exp( Emb_v · y_n − log z_n )
    ∂ log z_n / ∂ Emb_v = p_nv y_n

The naive formula writes an N x V matrix of logits and saves it for backward. With a large
vocabulary most of its time goes into that memory. The kernels of CPUs
(`kernels/cpu/tied_softmax.py`) and GPUs compute logits in tiles, and again backward. Other devices
and types of numbers have the naive formula.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.dispatch import as_arrays, has_gpu_kernels, has_product_kernels, run_kernel
from lmzoo.types import Embeddings

NAIVE_LIMIT = 1 << 20
"""The number of logits up to which the naive formula is used on a CPU."""
GPU_NAIVE_LIMIT = 1 << 16
"""The same for the kernels of a GPU. The naive formula moves the logits about twice as often."""


def log_normalisers(
    y: Float[Tensor, "*N E"], table: Embeddings, naive_limit: int = NAIVE_LIMIT
) -> Float[Tensor, "*N"]:
    """Return log Σ_v exp(table_v · y) for every vector of `y`."""
    on_gpu = has_gpu_kernels(y)
    limit = min(naive_limit, GPU_NAIVE_LIMIT) if on_gpu else naive_limit
    is_small = y.shape[:-1].numel() * len(table) <= limit
    if is_small or not (on_gpu or has_product_kernels(y)):
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
        from lmzoo.kernels.cpu import tied_softmax as cpu_kernels

        log_z, none = y.new_empty(y.shape[:-1]), _no_tokens(y)
        run_kernel(cpu_kernels.forward, *as_arrays(y, table, none, log_z, log_z))
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
        from lmzoo.kernels.cpu import tied_softmax as cpu_kernels

        y, table, log_z, g = tensors
        gradients = y.new_empty(y.shape), table.new_zeros(table.shape)
        arrays = as_arrays(g, y, table, _no_tokens(y), log_z, *gradients)
        run_kernel(cpu_kernels.backward, *arrays)
        return gradients


def _no_tokens(y: Tensor) -> Tensor:
    return torch.empty(len(y), 0, dtype=torch.int64, device=y.device)
