r"""Contrastive objectives: classify words as data or noise, without a sum over the vocabulary.

    sampled    log σ(s⁺) + Σ_{j=1..k} log σ(−s_j)                    w⁺ ~ p̃, w_j ~ q
    expected   Σ_w [ p̃(w) log σ(s_w) + k q(w) log σ(−s_w) ]

Noise-contrastive estimation takes s = c − log k q: then σ(s) = u / (k q + u) for u = eᶜ. With
c(w, h) as an estimate of the log-probability the expectation is

    J  = Σ_w [ p̃ log u/(kq + u) + k q log kq/(kq + u) ]
    ∇J = Σ_w kq/(kq + u) (p̃ − u) ∇c                            0 at u = p̃, for every k

whose gradient tends to that of the likelihood as k grows. Negative sampling takes s = c, as
if k q were 1; its optimum is c = log p̃ / (k q).

Gutmann & Hyvärinen 2010; Mnih & Teh 2012 (arXiv:1206.6426); Mikolov et al. 2013
(arXiv:1310.4546).
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid


def contrastive_objective(
    data: Float[Tensor, "*N"], noise: Float[Tensor, "*N k"]
) -> Float[Tensor, "*N"]:
    """Return the sampled objective, from the scores s of one data word and of k noise words."""
    return logsigmoid(data) + logsigmoid(-noise).sum(-1)


def expected_contrastive_objective(
    scores: Float[Tensor, "*N V"], data: Float[Tensor, "*N V"], noise: Float[Tensor, "V"], k: int
) -> Float[Tensor, "*N"]:
    """Return the expected objective, from the scores s of all words, p̃ and q."""
    return (data * logsigmoid(scores) + k * noise * logsigmoid(-scores)).sum(-1)
