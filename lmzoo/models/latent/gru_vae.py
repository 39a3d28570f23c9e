r"""Gaussian VAE: a recurrent VAE with a Gaussian sentence latent.

    μ = h_enc M                    log β learned, the same for all sentences
    q(z | s) = N(μ, β^{-2})        z = μ + ε / β,   ε ~ N(0, 1)
    p(z)     = N(μ_0, β_0^{-2})    μ_0 and log β_0 learned
    h_t = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = z          decoder, teacher-forced
    P(s_t | s_<t, z) = emission(N(h_t))

z, h_enc, h_t, μ and β are (E), M is (E, E). Encoder and decoder are those of `encoder_decoder.py`,
the bound that of `vae.py`. cell=mgu with `cuts` is the VAE with a mutable cell of S0.

Source: Kingma & Welling 2014 (arXiv:1312.6114); Bowman et al. 2016 (arXiv:1511.06349); S0 (DLM51;
DLM50: tanh RNN cells).
"""

import torch
from torch import Tensor, nn

from lmzoo.base.registry import preset
from lmzoo.contract import Task, model
from lmzoo.functional.initialisers import draw_uniform
from lmzoo.functional.noise import normal
from lmzoo.functional.variational import gaussian_kl, gaussian_log_density
from lmzoo.models.latent.vae import VAE, VAEConfig

SOURCE = "Kingma & Welling 2014 (arXiv:1312.6114); Bowman et al. 2016 (arXiv:1511.06349); S0"


class GaussianLatent(nn.Module):
    """The parameters of q and p: means and log inverse standard deviations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_mean = nn.Parameter(torch.empty(width, width))
        self.log_beta = nn.Parameter(torch.empty(width))
        self.prior_mean = nn.Parameter(torch.empty(width))
        self.prior_log_beta = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw M from U(E), μ_0, log β and log β_0 from U(2), as in the S0 code."""
        width = len(self.log_beta)
        draw_uniform(self.to_mean, width)
        for vector in (self.log_beta, self.prior_mean, self.prior_log_beta):
            draw_uniform(vector, 2)


@model("gru_vae", aliases=("DLM51",), family="vae", document="S0", source=SOURCE)
class GaussianVAE(VAE):
    """VAE with a GRU encoder and decoder and a Gaussian sentence latent."""

    Config = VAEConfig

    def __init__(self, config: VAEConfig, task: Task) -> None:
        super().__init__(config, task)
        self.z = GaussianLatent(config.width)
        self.noise_shape = (config.width,)

    def sample_posterior(self, h: Tensor, u: Tensor) -> Tensor:
        return h @ self.z.to_mean + normal(u) / self.z.log_beta.exp()

    def sample_prior(self, u: Tensor) -> Tensor:
        return self.z.prior_mean + normal(u) / self.z.prior_log_beta.exp()

    def kl(self, h: Tensor) -> Tensor:
        z = self.z
        return gaussian_kl(h @ z.to_mean, z.log_beta, z.prior_mean, z.prior_log_beta).sum(-1)

    def moments(self, h: Tensor) -> tuple[Tensor, Tensor]:
        mean = h @ self.z.to_mean
        return mean, self.z.log_beta.neg().exp().expand_as(mean)

    def log_ratio(self, z: Tensor, h: Tensor) -> Tensor:
        prior = gaussian_log_density(z, self.z.prior_mean, self.z.prior_log_beta)
        return prior - gaussian_log_density(z, h @ self.z.to_mean, self.z.log_beta)


preset(
    "rnn_vae", model="gru_vae", fields={"cell": "rnn"}, aliases=("DLM50",), family="vae",
    score="bound", document="S0", source=SOURCE,
    summary="VAE with a tanh-RNN encoder and decoder and a Gaussian sentence latent.",
)  # fmt: skip
