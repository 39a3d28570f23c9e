r"""Log-probabilities of tokens under a softmax over products with a table of vectors.

    l_nv = Emb_v · y_n      log p_n = l_nw − log Σ_v exp l_nv,  w = w_n
    δ_nv = ∂L/∂l_nv = g_n ( [v = w_n] − exp(l_nv) / Σ_u exp l_nu )
    ∂L/∂y_n = Σ_v δ_nv Emb_v        ∂L/∂Emb_v = Σ_n δ_nv y_n

The result is log p_n, and g_n = ∂L/∂(log p_n). Torch operations pass over (N, V) about ten times,
each time through main memory. A kernel processes blocks of positions whose logits stay in the cache
of a CPU (`kernels/cpu/tied_softmax.py`), and computes them again backward. GPUs use the tiles of
`log_normaliser.py`.
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.dispatch import as_arrays, has_product_kernels, run_kernel
from lmzoo.types import Embeddings


def tied_log_prob(
    y: Float[Tensor, "*N E"], table: Embeddings, tokens: Int[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """Return log softmax(table · y)_w for each token w; an IndexError if it is none (on a CPU)."""
    if not has_product_kernels(y):
        return naive_tied_log_prob(y, table, tokens)
    rows = y.reshape(-1, y.shape[-1])
    return _TiedSoftmax.apply(rows, table, tokens.reshape(-1))[0].view(tokens.shape)


def naive_tied_log_prob(
    y: Float[Tensor, "*N E"], table: Embeddings, tokens: Int[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """Compute `tied_log_prob` in torch operations."""
    return (y * table[tokens]).sum(-1) - log_normalisers(y, table)


class _TiedSoftmax(CustomFunction):
    """(y, table, tokens), all or none with a member axis first -> (log p, log z)."""

    axes = 2

    @staticmethod
    def compute(y: Tensor, table: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.kernels.cpu import tied_softmax as kernels

        log_p, log_z = y.new_empty(tokens.shape), y.new_empty(tokens.shape)
        if not run_kernel(kernels.forward, *as_arrays(y, table, tokens, log_p, log_z)):
            last, least, most = table.shape[1] - 1, tokens.min(), tokens.max()
            raise IndexError(f"token ids must be in 0..{last}; found {least}..{most}")
        return log_p, log_z

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if upstream[0] is None:
            return (None,) * 3
        y, *rest = ctx.saved_tensors
        return *_TiedSoftmaxBackward.apply(y, upstream[0], *rest), None


class _TiedSoftmaxBackward(Backward):
    """(y, g, table, tokens, log z) -> gradients of y and the table."""

    axes = 2

    @staticmethod
    def compute(y: Tensor, g: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.kernels.cpu import tied_softmax as kernels

        gradients = y.new_empty(y.shape), tensors[0].new_zeros(tensors[0].shape)
        run_kernel(kernels.backward, *as_arrays(g, y, *tensors, *gradients))
        return gradients
