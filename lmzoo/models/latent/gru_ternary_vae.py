r"""Ternary VAE: a recurrent VAE whose latent vector has the values −1, 0 and 1.

    z ∈ {−1, 0, 1}^E
    q(z_e | s) = softmax_3( (h_enc M)_e )        p(z_e) = softmax_3( π_e )

z and h_enc are (E), M is (E, 3·E), π is (E, 3). Encoder and decoder are those of
`encoder_decoder.py`, the bound that of `vae.py`, the gradient that of `discrete_vae.py`. The S0
code passes no gradient through the draw; its encoder learns from the KL only.

Source: S0 (DLM52, code); Kool, van Hoof & Welling 2019; Jang, Gu & Poole 2017 (arXiv:1611.01144).
"""

from lmzoo.base.config import config
from lmzoo.contract import model
from lmzoo.models.latent.discrete_vae import DiscreteVAE, DiscreteVAEConfig


@model("gru_ternary_vae", aliases=("DLM52",), family="vae", document="S0", source="S0 (code)")
class TernaryVAE(DiscreteVAE):
    """VAE with a GRU encoder and decoder and a ternary sentence latent."""

    values = (-1.0, 0.0, 1.0)
    logits = 3

    @config
    class Config(DiscreteVAEConfig):
        """VAE fields and the gradient estimator."""
