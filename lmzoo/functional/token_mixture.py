r"""Log-probabilities of tokens under K fixed distributions, mixed by a gate on the context.

    a_n = W y_n + b      π_n = softmax(a_n)      p_n = Σ_k π_nk exp(s_vk),  v = w_n
    r_nk = π_nk exp(s_vk) / p_n                  δ_n = ∂L/∂a_n = g_n (r_n − π_n)
    ∂L/∂s_v = Σ_{n : w_n = v} g_n r_n            ∂L/∂y_n = Wᵀ δ_n
    ∂L/∂W = Σ_n δ_n y_nᵀ                         ∂L/∂b = Σ_n δ_n

The result is log p_n, and g_n = ∂L/∂(log p_n). Torch operations pass over (N, K) about twenty
times, each time through main memory. On a GPU a kernel keeps the logits of a block of positions on
the chip (`kernels/gpu/token_mixture.py`).

Derived here. Source of the mixture: S0.
"""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding, linear

from lmzoo.kernels.dispatch import CustomFunction, has_gpu_kernels
from lmzoo.types import Vectors


def mixture_log_prob(
    y: Vectors,
    weight: Float[Tensor, "K E"],
    bias: Float[Tensor, "K"],
    s: Float[Tensor, "V K"],
    tokens: Int[Tensor, "*N"],
) -> Float[Tensor, "*N"]:
    """Return log Σ_k softmax(W y + b)_k exp(s_wk) for each token w, exact even if p underflows.

    W and b are those of the gate, and s_vk is log P(v | k). On a CPU, a token id outside 0..V-1
    raises an IndexError.
    """
    if not has_gpu_kernels(y):
        return naive_mixture_log_prob(y, weight, bias, s, tokens)
    rows = y.reshape(-1, y.shape[-1])
    # The kernel reads tokens with any strides.
    words = tokens.reshape(-1, tokens.shape[-1])
    log_p = _Mixture.apply(rows, weight, bias, s, words)[0]
    return log_p.view(tokens.shape)


def naive_mixture_log_prob(
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    s: Tensor,
    tokens: Tensor,
) -> Tensor:
    """Compute `mixture_log_prob` in torch operations."""
    a = gate_logits(y, weight, bias)
    scores = embedding(tokens, s)
    # In logarithms, so that the result is exact even where p underflows.
    log_gate = a.log_softmax(-1)
    joint = log_gate + scores
    return joint.logsumexp(-1)


def gate_logits(
    y: Vectors,
    weight: Float[Tensor, "K E"],
    bias: Float[Tensor, "K"],
) -> Float[Tensor, "*N K"]:
    """Return W y + b by one product; in packed training more axes would give one per sequence."""
    rows = y.reshape(-1, y.shape[-1])
    logits = linear(rows, weight, bias)
    return logits.view(y.shape[:-1] + bias.shape)


class _Mixture(CustomFunction):
    """(y, W, b, s, tokens), all or none with a member axis first -> (log p, *saved)."""

    axes = 2

    @staticmethod
    def compute(
        y: Tensor,
        weight: Tensor,
        bias: Tensor,
        s: Tensor,
        tokens: Tensor,
    ) -> tuple[Tensor, ...]:
        from lmzoo.kernels.gpu import token_mixture as kernels

        return kernels.forward(y, weight, bias, s, tokens)

    @staticmethod
    def gradients(
        y: Tensor,
        g: Tensor,
        weight: Tensor,
        bias: Tensor,
        s: Tensor,
        tokens: Tensor,
        a: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the gradients of y, W, b and s."""
        from lmzoo.kernels.gpu import token_mixture as kernels

        return kernels.backward(g, y, weight, bias, s, tokens, a)
