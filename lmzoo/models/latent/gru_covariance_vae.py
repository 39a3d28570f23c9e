r"""Gaussian VAE whose prior has a full covariance.

    q(z | s) = N(μ, β^{-2})            as in `gru_vae.py`
    p(z)     = N(μ_0, (Uᵀ U)^{-1})     U upper triangular, U_ee = β_0e > 0
    z        = μ_0 + U^{-1} ε,   ε ~ N(0, 1)
    KL       = Σ_e [ log β_e − log β_0e − ½ ] + ½ Σ_ef U_ef² β_f^{-2} + ½ ‖U (μ − μ_0)‖²

z, μ, μ_0, β and β_0 are (E), U is (E, E). The prior can follow the correlations of the codes of
sentences, which the diagonal prior pays for in KL. At the start U is diagonal and the model equals
`gru_vae`. The posterior stays diagonal.

Source: Kingma & Welling 2014 (arXiv:1312.6114); S0 (a Gaussian prior with covariance).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.noise import normal
from lmzoo.functional.variational import gaussian_log_density
from lmzoo.models.latent.gru_vae import GaussianLatent, GaussianVAE
from lmzoo.models.latent.vae import VAEConfig


class CovarianceLatent(GaussianLatent):
    """The parameters of q, and μ_0, log β_0 and U above its diagonal, row by row."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.prior_upper = nn.Parameter(torch.zeros(width * (width - 1) // 2))

    def reset_parameters(self) -> None:
        """Draw as `gru_vae` does, and set U above its diagonal to 0."""
        super().reset_parameters()
        if hasattr(self, "prior_upper"):  # the base class draws before it exists
            nn.init.zeros_(self.prior_upper)

    def factor(self) -> Float[Tensor, "E E"]:
        """Return U."""
        order = torch.arange(len(self.log_beta), device=self.log_beta.device)
        upper = (order[:, None] < order).flatten()
        index = upper.cumsum(0) * upper  # number of the entry, from 1; 0 elsewhere
        above = nn.functional.pad(self.prior_upper, (1, 0))[index].unflatten(0, (len(order), -1))
        return above + self.prior_log_beta.exp().diag()


@model(
    "gru_covariance_vae", family="vae", document="S0",
    source="Kingma & Welling 2014 (arXiv:1312.6114); S0",
)  # fmt: skip
class CovarianceVAE(GaussianVAE):
    """VAE with a GRU encoder and decoder and a Gaussian prior with a full covariance."""

    @config
    class Config(VAEConfig):
        """VAE fields."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.z = CovarianceLatent(config.width)

    def sample_prior(self, u: Tensor) -> Tensor:
        z = self.z
        eps = normal(u)[..., None]
        return z.prior_mean + torch.linalg.solve_triangular(z.factor(), eps, upper=True)[..., 0]

    def kl(self, h: Tensor) -> Tensor:
        z, factor = self.z, self.z.factor()
        log_ratio = 2 * (z.prior_log_beta - z.log_beta)
        above = (factor.triu(1) / z.log_beta.exp()).square().sum()
        # expm1(x) − x, not exp(x) − 1 − x: the terms nearly cancel for similar Gaussians.
        constant = (torch.expm1(log_ratio) - log_ratio).sum() + above
        shift = ((h @ z.to_mean - z.prior_mean) @ factor.T).square().sum(-1)
        return 0.5 * (constant + shift)

    def log_ratio(self, z: Tensor, h: Tensor) -> Tensor:
        part = self.z
        white = (z - part.prior_mean) @ part.factor().T
        log_det = part.prior_log_beta.sum() - 0.5 * z.shape[-1] * math.log(2 * math.pi)
        prior = log_det - 0.5 * white.square().sum(-1)
        return prior - gaussian_log_density(z, h @ part.to_mean, part.log_beta)
