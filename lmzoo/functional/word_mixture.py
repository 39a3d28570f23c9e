r"""Log-probabilities of words under K fixed distributions, mixed by a gate on the context.

    a_n = W y_n + b      π_n = softmax(a_n)      p_n = Σ_k π_nk exp(s_vk),  v = w_n
    r_nk = π_nk exp(s_vk) / p_n                  δ_n = ∂L/∂a_n = g_n (r_n − π_n)
    ∂L/∂s_v = Σ_{n : w_n = v} g_n r_n            ∂L/∂y_n = Wᵀ δ_n
    ∂L/∂W = Σ_n δ_n y_nᵀ                         ∂L/∂b = Σ_n δ_n

The result is log p_n, and g_n = ∂L/∂(log p_n). As operations of torch, which is the plain
formula below, this is a score of passes over (N, K) and back, and a pack of fused members
waits for memory in each. On a CPU it is compiled, some positions at a time, whose logits
stay in the cache (`kernels/word_mixture.py`).

Derived here; the mixture is S0's, zoo.md 1.4.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.kernels.autograd import Backward, CustomFunction
from lmzoo.kernels.dispatch import as_arrays, has_kernels, has_products, run_kernel
from lmzoo.kernels.members import mapped, with_members

LEAST = {torch.float32: 1e-30, torch.float64: 1e-290}
"""The p below which a type of numbers needs logarithms."""


def log_prob_of_words(
    y: Float[Tensor, "*N E"],
    weight: Float[Tensor, "K E"],
    bias: Float[Tensor, "K"],
    s: Float[Tensor, "V K"],
    words: Int[Tensor, "*N"],
) -> Float[Tensor, "*N"]:
    """Log Σ_k softmax(W y + b)_k exp(s_wk) for each word w; exact however small.

    Args:
        y: the context at each position.
        weight: W of the gate.
        bias: b of the gate.
        s: log P(v | k) of every word.
        words: which word stands at each position.

    Raises:
        IndexError: a word has no scores.
    """
    if not (has_kernels(y) and has_products()):
        return plain(y, weight, bias, s, words)
    rows = y.reshape(-1, y.shape[-1])
    return _Score.apply(rows, weight, bias, s, words.reshape(-1))[0].view(words.shape)


def plain(
    y: Float[Tensor, "*N E"],
    weight: Float[Tensor, "K E"],
    bias: Float[Tensor, "K"],
    s: Float[Tensor, "V K"],
    words: Int[Tensor, "*N"],
) -> Float[Tensor, "*N"]:
    """The same, operation by operation."""
    a = logits(y, weight, bias)
    scores = torch.nn.functional.embedding(words, s)
    return torch.logsumexp(torch.log_softmax(a, dim=-1) + scores, dim=-1)


def logits(
    y: Float[Tensor, "*N E"], weight: Float[Tensor, "K E"], bias: Float[Tensor, "K"]
) -> Float[Tensor, "*N K"]:
    """W y + b, as one product: with more axes, fused members would get one for each sequence."""
    rows = y.reshape(-1, y.shape[-1])
    return torch.nn.functional.linear(rows, weight, bias).view(*y.shape[:-1], len(weight))


class _Score(CustomFunction):
    """(y, W, b, s, words), each with members first or none -> (log p, *kept)."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        return with_members(_score, given, axes=2)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if upstream[0] is None:
            return (None,) * 5
        return *_Reverse.apply(upstream[0], *ctx.saved_tensors), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Tensor) -> Any:
        return mapped(_Score, info.batch_size, in_dims, given, axes=2)


class _Reverse(Backward):
    """(g, y, W, b, s, words, π, exp(s - top), p) -> gradients of y, W, b and s."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        return with_members(_gradients, given, axes=1)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Tensor) -> Any:
        return mapped(_Reverse, info.batch_size, in_dims, given, axes=1)


def _score(y: Tensor, weight: Tensor, bias: Tensor, s: Tensor, words: Tensor) -> tuple[Tensor, ...]:
    from lmzoo.kernels.cpu import word_mixture as kernels

    pi, e = y.new_empty(*words.shape, weight.shape[1]), s.new_empty(s.shape)
    top, p, out = s.new_empty(s.shape[:-1]), y.new_empty(words.shape), y.new_empty(words.shape)
    given = as_arrays(y, weight, bias, s, words)
    if not run_kernel(kernels.score, *given, *as_arrays(e, top, pi, p, out), LEAST[y.dtype]):
        last, least, most = s.shape[1] - 1, words.min(), words.max()
        raise IndexError(f"a word is not in 0..{last}: {least}..{most}")
    return out, pi, e, p


def _gradients(*given: Tensor) -> tuple[Tensor, ...]:
    from lmzoo.kernels.cpu import word_mixture as kernels

    _, y, weight, bias, s, *_ = given
    dy, (dweight, dbias, ds) = (
        y.new_empty(y.shape),
        (x.new_zeros(x.shape) for x in (weight, bias, s)),
    )
    run_kernel(
        kernels.reverse, *as_arrays(*given), LEAST[y.dtype], *as_arrays(dy, dweight, dbias, ds)
    )
    return dy, dweight, dbias, ds
