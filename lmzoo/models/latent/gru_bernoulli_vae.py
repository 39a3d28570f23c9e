r"""Bernoulli VAE: a recurrent VAE whose latent vector consists of bits.

    z ∈ {0, 1}^E
    q(z_e = 1 | s) = σ( (h_enc M)_e )            p(z_e = 1) = σ( π_e )
    KL = Σ_e [ q_e log(q_e / p_e) + (1 − q_e) log((1 − q_e) / (1 − p_e)) ]

z, h_enc and π are (E), M is (E, E). A sentence is a code of E bits, and KL / log 2 the number of
bits that it uses. Encoder and decoder are those of `encoder_decoder.py`, the bound that of
`vae.py`, the gradient that of `discrete_vae.py`.

Source: S0 (it expects latents of Bernoulli type to fit better than Gaussian ones); Jang, Gu & Poole
2017 (arXiv:1611.01144).
"""

from lmzoo.base.config import config
from lmzoo.contract import model
from lmzoo.models.latent.discrete_vae import DiscreteVAE, DiscreteVAEConfig


@model(
    "gru_bernoulli_vae", family="vae", document="S0",
    source="Jang, Gu & Poole 2017 (arXiv:1611.01144); S0",
)  # fmt: skip
class BernoulliVAE(DiscreteVAE):
    """VAE with a GRU encoder and decoder and a sentence latent of bits."""

    values = (0.0, 1.0)
    logits = 1

    @config
    class Config(DiscreteVAEConfig):
        """VAE fields and the gradient estimator."""
