"""VAEs with a Gaussian posterior."""

from torch import Tensor

from lmzoo.contract import Task, model
from lmzoo.functional.noise import normal
from lmzoo.functional.parameters import DrawnModule
from lmzoo.functional.variational import gaussian_kl, gaussian_log_density
from lmzoo.models.vae import VAE, VAEConfig

SOURCE = "Kingma & Welling 2014 (arXiv:1312.6114); Bowman et al. 2016 (arXiv:1511.06349); S0"


class GaussianLatent(DrawnModule):
    """The parameters of q and p: means and log inverse standard deviations, drawn as by S0."""

    def __init__(self, width: int):
        super().__init__()
        self.set_drawn(width, to_mean=(width, width))
        # From U(2), whatever the width, as S0 draws them.
        self.set_drawn(
            2,
            log_beta=(width,),
            prior_mean=(width,),
            prior_log_beta=(width,),
        )


@model(
    "gru_vae",
    aliases=("DLM51",),
    family="vae",
    document="S0",
    source=SOURCE,
)
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

    def __init__(self, config: VAEConfig, task: Task):
        super().__init__(config, task)
        self.z = GaussianLatent(config.width)
        self.noise_shape = (config.width,)

    def sample_posterior(self, h: Tensor, u: Tensor) -> Tensor:
        precision = self.z.log_beta.exp()
        noise = normal(u) / precision
        return h @ self.z.to_mean + noise

    def sample_prior(self, u: Tensor) -> Tensor:
        precision = self.z.prior_log_beta.exp()
        noise = normal(u) / precision
        return self.z.prior_mean + noise

    def kl(self, h: Tensor) -> Tensor:
        z = self.z
        mean = h @ z.to_mean
        # Both densities are products over channels, so the divergence is a sum.
        by_channel = gaussian_kl(mean, z.log_beta, z.prior_mean, z.prior_log_beta)
        return by_channel.sum(-1)

    def moments(self, h: Tensor) -> tuple[Tensor, Tensor]:
        mean = h @ self.z.to_mean
        std = self.z.log_beta.neg().exp()
        return mean, std.expand_as(mean)

    def log_ratio(self, z: Tensor, h: Tensor) -> Tensor:
        prior = gaussian_log_density(z, self.z.prior_mean, self.z.prior_log_beta)
        mean = h @ self.z.to_mean
        posterior = gaussian_log_density(z, mean, self.z.log_beta)
        return prior - posterior
