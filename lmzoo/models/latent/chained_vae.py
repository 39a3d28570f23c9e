r"""Chained VAE: a second VAE models the code of a noisy recurrent autoencoder.

    c̄ = h_enc M,   q(c | s) = N(c̄, β^{-2})        noisy autoencoder, s ↔ c
    q(z | c) = N(f(c), τ^{-2})                      VAE of the code, c ↔ z
    p(z) = N(0, 1),   p(c | z) = N(g(z), γ^{-2})
    h_t = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = c    decoder, teacher-forced

    log P(s) ≥ E_q[ Σ_t log P(s_t | s_<t, c) ] − D
    D        = E_q[ log q(c | s) − log p(c | z) + KL(q(z | c) ‖ p(z)) ]

c and β are (E), z and τ are (Z) with Z = `code`, M is (E, E). f and g have one hidden layer of E
tanh units; β, γ and τ are learned and the same for all sentences. The prior of the code, the
integral of p(c | z) over z, is no Gaussian. With a g that ignores z and q(z | c) = p(z), the model
is `gru_vae`. All parts are trained together on the bound; the noise 1/β of the code keeps it
finite. A draw of this model is the vector [c; z].

Source: Kingma & Welling 2014 (arXiv:1312.6114); Dai & Wipf 2019 (arXiv:1903.05789, a second VAE of
the code); S0 (a VAE on the code of an autoencoder).
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.initialisers import draw_uniform
from lmzoo.functional.noise import normal, shared_uniforms
from lmzoo.functional.variational import gaussian_kl, gaussian_log_density
from lmzoo.models.latent.vae import VAE, VAEConfig


class ChainedLatent(nn.Module):
    """The parameters M, f, g, log β, log γ and log τ."""

    def __init__(self, width: int, code: int) -> None:
        super().__init__()
        self.to_mean = nn.Parameter(torch.empty(width, width))
        self.encode = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.Tanh(), nn.Linear(width, width))
        self.log_beta = nn.Parameter(torch.empty(width))
        self.log_gamma = nn.Parameter(torch.empty(width))
        self.log_tau = nn.Parameter(torch.empty(code))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw M from U(E) and the log inverse standard deviations from U(2)."""
        draw_uniform(self.to_mean, len(self.to_mean))
        for vector in (self.log_beta, self.log_gamma, self.log_tau):
            draw_uniform(vector, 2)


@model(
    "chained_vae", family="vae", document="S0",
    source="Kingma & Welling 2014 (arXiv:1312.6114); Dai & Wipf 2019 (arXiv:1903.05789); S0",
)  # fmt: skip
class ChainedVAE(VAE):
    """VAE of the code of a noisy autoencoder with a GRU encoder and decoder."""

    @config
    class Config(VAEConfig):
        """VAE fields and the size of the second latent."""

        code: int = Field(8, ge=1)
        """Size Z of the latent z of the code."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.z = ChainedLatent(config.width, config.code)
        self.noise_shape = (config.width + config.code,)

    def sample_posterior(self, h: Tensor, u: Tensor) -> Tensor:
        noise_c, noise_z = self._split(normal(u))
        c = h @ self.z.to_mean + noise_c / self.z.log_beta.exp()
        z = self.z.encode(c) + noise_z / self.z.log_tau.exp()
        return torch.cat([c, z], dim=-1)

    def sample_prior(self, u: Tensor) -> Tensor:
        """Return draws of the code c, which is what the decoder reads."""
        noise_c, z = self._split(normal(u))
        return self.z.decode(z) + noise_c / self.z.log_gamma.exp()

    def decode(self, tokens: Tensor, z: Tensor) -> Tensor:
        return super().decode(tokens, self._split(z)[0])

    def divergence(self, z: Tensor, h: Tensor) -> Tensor:
        part, (c, z) = self.z, self._split(z)
        log_q = gaussian_log_density(c, h @ part.to_mean, part.log_beta)
        log_p = self._log_code(c, z)
        zero = torch.zeros_like(part.log_tau)
        kl = gaussian_kl(part.encode(c), part.log_tau, zero, zero).sum(-1)
        return (log_q - log_p + kl).mean(0)

    def kl(self, h: Tensor) -> Tensor:
        """Return D, estimated from the draws of evaluation."""
        u = shared_uniforms((self.config.samples, 1, *self.noise_shape), h)
        return self.divergence(self.sample_posterior(h, u), h)

    def moments(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of the code c."""
        mean = h @ self.z.to_mean
        return mean, self.z.log_beta.neg().exp().expand_as(mean)

    def log_ratio(self, z: Tensor, h: Tensor) -> Tensor:
        part, (c, z) = self.z, self._split(z)
        zero = torch.zeros_like(part.log_tau)
        prior = self._log_code(c, z) + gaussian_log_density(z, zero, zero)
        log_q = gaussian_log_density(c, h @ part.to_mean, part.log_beta)
        return prior - log_q - gaussian_log_density(z, part.encode(c), part.log_tau)

    def _log_code(
        self, c: Float[Tensor, "S B E"], z: Float[Tensor, "S B Z"]
    ) -> Float[Tensor, "S B"]:
        """Return log p(c | z)."""
        return gaussian_log_density(c, self.z.decode(z), self.z.log_gamma)

    def _split(self, joint: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parts c and z of the last axis."""
        return joint[..., : self.config.width], joint[..., self.config.width :]
