r"""A Gaussian on the code of a flat autoencoder, as wide as its prior.

    μ = h M + h                       h = encode(x)
    q(z | s) = N(μ, β_0^{-2})         z = μ + ε / β_0
    p(z)     = N(μ_0, β_0^{-2})       μ_0 and log β_0 learned
    KL       = ½ Σ_e β_0² (μ − μ_0)²  as the spreads are one

S0 DLM55 (code); zoo.md 2.4.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.functional.divergence import gaussian_kl
from lmzoo.functional.draw import uniform


class GaussianCode(nn.Module):
    """M, μ_0 and log β_0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_mean = nn.Parameter(torch.empty(width, width))
        self.prior_mean = nn.Parameter(torch.empty(width))
        self.log_beta = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """M from U(E), the vectors from U(2), as published."""
        width = len(self.log_beta)
        with torch.no_grad():
            self.to_mean.copy_(uniform((width, width), width))
            for vector in (self.prior_mean, self.log_beta):
                vector.copy_(uniform((width,), 2))

    def mean(self, h: Float[Tensor, "B E"]) -> Float[Tensor, "B E"]:
        """μ."""
        return h @ self.to_mean + h

    @property
    def spread(self) -> Float[Tensor, "E"]:
        """1/β_0."""
        return self.log_beta.neg().exp()

    def kl(self, mean: Float[Tensor, "B E"]) -> Float[Tensor, "B"]:
        """KL(q ‖ p) of each sequence, in nats."""
        return gaussian_kl(mean, self.log_beta, self.prior_mean, self.log_beta).sum(-1)
