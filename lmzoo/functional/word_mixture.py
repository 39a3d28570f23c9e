r"""Log-probabilities of words under a gated mixture of K fixed distributions.

    π_n = softmax(a_n)        p_n = Σ_k π_nk exp(s_vk),  v = w_n          the result is log p_n
    r_nk = π_nk exp(s_vk) / p_n
    ∂/∂a_n = g_n (r_n − π_n)                ∂/∂s_v = Σ_{n : w_n = v} g_n r_n

As operations of torch, which is the plain formula below, this is a dozen passes over
(N, K) and back, and a pack of fused members waits for memory in each. On a CPU the
passes are one forward and one backward, compiled (`kernels/word_mixture.py`).

Derived here; the mixture is S0's, zoo.md 1.4.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.functional.members import Members
from lmzoo.functional.processor import arrays, has_loops

LEAST = {torch.float32: 1e-30, torch.float64: 1e-290}
"""The p below which a type of numbers needs logarithms."""


def log_prob_of_words(
    a: Float[Tensor, "*N K"], s: Float[Tensor, "V K"], words: Int[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """Log Σ_k softmax(a)_k exp(s_wk) for each word w; exact however small.

    Args:
        a: the gate's logits at each position.
        s: log P(v | k) of every word.
        words: which word stands at each position.

    Raises:
        IndexError: a word has no scores.
    """
    if not has_loops(a):
        return plain(a, s, words)
    of_one_member = a.reshape(1, -1, a.shape[-1]), s[None], words.reshape(1, -1)
    return _Score.apply(*of_one_member)[0].view(words.shape)


def plain(
    a: Float[Tensor, "*N K"], s: Float[Tensor, "V K"], words: Int[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """The same, operation by operation."""
    scores = torch.nn.functional.embedding(words, s)
    return torch.logsumexp(torch.log_softmax(a, dim=-1) + scores, dim=-1)


class _Score(torch.autograd.Function):
    """(a, s, words), each with members first -> (log p, *kept)."""

    @staticmethod
    def forward(a: Tensor, s: Tensor, words: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.functional.kernels import word_mixture as kernels

        pi = torch.softmax(a, dim=-1)
        top = s.amax(dim=-1)
        top = top.masked_fill(top == -torch.inf, 0.0)  # a word that no component knows
        e = (s - top[..., None]).exp_()
        p, out = a.new_empty(words.shape), a.new_empty(words.shape)
        given = arrays(a, s, pi, e, top, words, p, out)
        if not kernels.score(*given, least=LEAST[a.dtype]):
            raise IndexError(f"a word is not in 0..{s.shape[1] - 1}: {words.min()}..{words.max()}")
        return out, pi, e, p

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if upstream[0] is None:
            return None, None, None
        return *_Reverse.apply(upstream[0], *ctx.saved_tensors), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Tensor) -> Any:
        return _mapped(_Score, info.batch_size, in_dims, given)


class _Reverse(torch.autograd.Function):
    """(g, a, s, words, π, exp(s - top), p) -> gradients of a and s."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.functional.kernels import word_mixture as kernels

        g, a, s, words, pi, e, p = given
        da, ds = pi.new_empty(pi.shape), e.new_zeros(e.shape)
        kernels.reverse(*arrays(a, s, pi, e, words, p, g, da, ds), least=LEAST[a.dtype])
        return da, ds

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> None:
        raise NotImplementedError(
            "a compiled mixture has no second derivative; differentiate word_mixture.plain instead"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Tensor) -> Any:
        return _mapped(_Reverse, info.batch_size, in_dims, given)


def _mapped(function: Any, size: int, dims: Sequence[int | None], given: Sequence[Tensor]) -> Any:
    """What is mapped over becomes members, beside those that there are."""
    members = Members(size, already=True)
    found = function.apply(*members.join(given, dims, [0] * len(given)))
    return members.split(found, [0] * len(found))
