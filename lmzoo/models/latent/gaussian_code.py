r"""Gaussian posterior and prior of a flat autoencoder's code, with one shared variance.

    μ = h M + h                       h = encode(x)
    q(z | s) = N(μ, β_0^{-2})         z = μ + ε / β_0
    p(z)     = N(μ_0, β_0^{-2})       μ_0 and log β_0 learned
    KL       = ½ Σ_e β_0² (μ − μ_0)²

h, μ, μ_0 and β_0 are (E), M is (E, E).

Source: S0 (DLM55, code).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.functional.initialisers import uniform
from lmzoo.functional.variational import gaussian_kl


class GaussianCode(nn.Module):
    """The parameters M, μ_0 and log β_0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_mean = nn.Parameter(torch.empty(width, width))
        self.prior_mean = nn.Parameter(torch.empty(width))
        self.log_beta = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw M from U(E), μ_0 and log β_0 from U(2), as in the S0 code."""
        width = len(self.log_beta)
        with torch.no_grad():
            self.to_mean.copy_(uniform((width, width), width))
            for vector in (self.prior_mean, self.log_beta):
                vector.copy_(uniform((width,), 2))

    def mean(self, h: Float[Tensor, "B E"]) -> Float[Tensor, "B E"]:
        """Return μ."""
        return h @ self.to_mean + h

    @property
    def std(self) -> Float[Tensor, "E"]:
        """The standard deviation 1/β_0."""
        return self.log_beta.neg().exp()

    def kl(self, mean: Float[Tensor, "B E"]) -> Float[Tensor, "B"]:
        """Return KL(q ‖ p) of each sequence, in nats."""
        return gaussian_kl(mean, self.log_beta, self.prior_mean, self.log_beta).sum(-1)
