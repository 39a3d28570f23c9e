"""VAEs with a Gaussian posterior."""

import math

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.registry import preset
from lmzoo.contract import Task, model
from lmzoo.functional.noise import normal, shared_uniforms
from lmzoo.functional.parameters import DrawnModule
from lmzoo.functional.variational import gaussian_kl, gaussian_log_density
from lmzoo.models.vae import VAE, VAEConfig

SOURCE = "Kingma & Welling 2014 (arXiv:1312.6114); Bowman et al. 2016 (arXiv:1511.06349); S0"


class GaussianLatent(DrawnModule):
    """The parameters of q and p: means and log inverse standard deviations, drawn as by S0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.set_drawn(width, to_mean=(width, width))
        self.set_drawn(2, log_beta=(width,), prior_mean=(width,), prior_log_beta=(width,))


@model("gru_vae", aliases=("DLM51",), family="vae", document="S0", source=SOURCE)
class GaussianVAE(VAE):
    """VAE with a GRU encoder and decoder and a Gaussian sentence latent.

        μ = h_enc M                    log β learned, the same for all sentences
        q(z | s) = N(μ, β^{-2})        z = μ + ε / β,   ε ~ N(0, 1)
        p(z)     = N(μ_0, β_0^{-2})    μ_0 and log β_0 learned
        h_t = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = z          decoder, teacher-forced
        P(s_t | s_<t, z) = emission(N(h_t))

    z, h_enc, h_t, μ and β are (E), M is (E, E). Encoder and decoder are those of
    `encoder_decoder.py`, the bound that of `vae.py`. cell=mgu with `cuts` is the VAE with a mutable
    cell of S0.
    """

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


class CovarianceLatent(GaussianLatent):
    """The parameters of q, and μ_0, log β_0 and U above its diagonal, row by row."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.prior_upper = nn.Parameter(torch.zeros(width * (width - 1) // 2))

    def reset_parameters(self) -> None:
        """Draw as `gru_vae` does, and set U above its diagonal to 0."""
        super().reset_parameters()
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
    """VAE with a GRU encoder and decoder and a Gaussian prior with a full covariance.

        q(z | s) = N(μ, β^{-2})            as in `gru_vae`
        p(z)     = N(μ_0, (Uᵀ U)^{-1})     U upper triangular, U_ee = β_0e > 0
        z        = μ_0 + U^{-1} ε,   ε ~ N(0, 1)
        KL       = Σ_e [ log β_e − log β_0e − ½ ] + ½ Σ_ef U_ef² β_f^{-2} + ½ ‖U (μ − μ_0)‖²

    z, μ, μ_0, β and β_0 are (E), U is (E, E). The prior can follow the correlations of the codes of
    sentences, which the diagonal prior pays for in KL. At the start U is diagonal and the model
    equals `gru_vae`. The posterior stays diagonal.
    """

    def __init__(self, config: VAEConfig, task: Task) -> None:
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


class ChainedLatent(DrawnModule):
    """The parameters M, f, g, log β, log γ and log τ."""

    def __init__(self, width: int, code: int) -> None:
        super().__init__()
        self.set_drawn(width, to_mean=(width, width))
        self.encode = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.Tanh(), nn.Linear(width, width))
        self.set_drawn(2, log_beta=(width,), log_gamma=(width,), log_tau=(code,))


@model(
    "chained_vae", family="vae", document="S0",
    source="Kingma & Welling 2014 (arXiv:1312.6114); Dai & Wipf 2019 (arXiv:1903.05789); S0",
)  # fmt: skip
class ChainedVAE(VAE):
    """VAE of the code of a noisy autoencoder with a GRU encoder and decoder.

        c̄ = h_enc M,   q(c | s) = N(c̄, β^{-2})        noisy autoencoder, s ↔ c
        q(z | c) = N(f(c), τ^{-2})                      VAE of the code, c ↔ z
        p(z) = N(0, 1),   p(c | z) = N(g(z), γ^{-2})
        h_t = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = c    decoder, teacher-forced

        log P(s) ≥ E_q[ Σ_t log P(s_t | s_<t, c) ] − D
        D        = E_q[ log q(c | s) − log p(c | z) + KL(q(z | c) ‖ p(z)) ]

    c and β are (E), z and τ are (Z) with Z = `code`, M is (E, E). f and g have one hidden layer of
    E tanh units; β, γ and τ are learned and the same for all sentences. The prior of the code, the
    integral of p(c | z) over z, is no Gaussian. With a g that ignores z and q(z | c) = p(z), the
    model is `gru_vae`. All parts are trained together on the bound; the noise 1/β of the code keeps
    it finite. A draw of this model is the vector [c; z].
    """

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
        return gaussian_log_density(c, self.z.decode(z), self.z.log_gamma)

    def _split(self, joint: Tensor) -> tuple[Tensor, Tensor]:
        return joint[..., : self.config.width], joint[..., self.config.width :]
