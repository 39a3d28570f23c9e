r"""Ternary VAE: a recurrent VAE whose latent vector has the values −1, 0 and 1.

    z ∈ {−1, 0, 1}^E
    q(z_e | s) = softmax_3( (h_enc M)_e )        p(z_e) = softmax_3( π_e )

z and h_enc are (E), M is (E, 3·E), π is (E, 3). Encoder and decoder are those of
`encoder_decoder.py`, the bound that of `vae.py`. A discrete draw has no derivative, so the gradient
of the reconstruction R(z) = Σ_t log P(s_t | s_<t, z) with respect to q is estimated:

    score     ½ Σ_k (R(z_k) − R(z_other)) ∇ log q(z_k | s)     two draws, unbiased
    gumbel    z = hard + (soft − soft.detach()), soft = softmax((logits + Gumbel) / τ)

The S0 code passes no gradient through the draw; its encoder learns from the KL only.

Source: S0 (DLM52, code); Kool, van Hoof & Welling 2019 (the other draw as baseline); Jang, Gu &
Poole 2017 (arXiv:1611.01144, straight-through).
"""

from enum import StrEnum

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import Task, model, scored_mask
from lmzoo.functional.initialisers import Draw, draw_matrices, uniform
from lmzoo.functional.noise import gumbel
from lmzoo.functional.variational import categorical_kl
from lmzoo.models.latent.vae import VAE, VAEConfig, share_over_tokens

VALUES = (-1.0, 0.0, 1.0)


class Estimator(StrEnum):
    """Gradient estimator of the discrete draw."""

    SCORE = "score"
    GUMBEL = "gumbel"


class TernaryLatent(nn.Module):
    """The parameters M and π: the logits of q and of p."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_logits = nn.Parameter(torch.empty(width, len(VALUES) * width))
        self.prior_logits = nn.Parameter(torch.empty(width, len(VALUES)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw M from U(E) and π from U(3)."""
        with torch.no_grad():
            self.to_logits.copy_(uniform(tuple(self.to_logits.shape), len(self.to_logits)))
            self.prior_logits.copy_(uniform(tuple(self.prior_logits.shape), len(VALUES)))

    def redraw(self, name: str, draw: Draw) -> None:
        """Draw with a named initialiser. M is stored as (in, out), so it is transposed."""
        draw_matrices(self.to_logits.mT if name == "to_logits" else self.prior_logits, draw)


@model("gru_ternary_vae", aliases=("DLM52",), family="vae", document="S0", source="S0 (code)")
class TernaryVAE(VAE):
    """VAE with a GRU encoder and decoder and a ternary sentence latent."""

    @config
    class Config(VAEConfig):
        """VAE fields and the gradient estimator."""

        estimator: Estimator = Estimator.GUMBEL
        temperature: float = Field(1.0, gt=0)
        """Temperature τ of the gumbel estimator."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.z = TernaryLatent(config.width)
        self.noise_shape = (config.width, len(VALUES))
        self.training_samples = 2 if config.estimator is Estimator.SCORE else 1

    def sample_posterior(self, h: Tensor, u: Tensor) -> Tensor:
        noisy = self.log_q(h) + gumbel(u)
        hard = nn.functional.one_hot(noisy.argmax(-1), len(VALUES)).to(h)
        if self.training and self.config.estimator is Estimator.GUMBEL:
            soft = torch.softmax(noisy / self.config.temperature, dim=-1)
            # With these parentheses the value stays exactly ternary.
            hard = hard + (soft - soft.detach())
        return hard @ h.new_tensor(VALUES)

    def sample_prior(self, u: Tensor) -> Tensor:
        values = self.z.prior_logits.new_tensor(VALUES)
        return values[(self.log_p() + gumbel(u)).argmax(-1)]

    def kl(self, h: Tensor) -> Tensor:
        return categorical_kl(self.log_q(h), self.log_p()).sum(-1)

    def log_ratio(self, z: Tensor, h: Tensor) -> Tensor:
        return self.log_prob_of(self.log_p(), z) - self.log_prob_of(self.log_q(h), z)

    def reconstruction(self, tokens: Tensor, lengths: Tensor, z: Tensor, h: Tensor) -> Tensor:
        scores = self.decode(tokens, z)
        if not self.training or self.config.estimator is Estimator.GUMBEL:
            return scores
        total = torch.where(scored_mask(tokens, lengths)[:, 1:], scores, 0).sum(-1).detach()
        log_q = self.log_prob_of(self.log_q(h), z)
        # The added term is 0 and has the estimated gradient.
        return scores + share_over_tokens(
            (total - total.flip(0)) * (log_q - log_q.detach()), lengths
        )

    def log_q(self, h: Float[Tensor, "B E"]) -> Float[Tensor, "B E 3"]:
        """Return log q(z_e | s) of the three values."""
        return torch.log_softmax((h @ self.z.to_logits).unflatten(-1, (-1, 3)), dim=-1)

    def log_p(self) -> Float[Tensor, "E 3"]:
        """Return log p(z_e) of the three values."""
        return torch.log_softmax(self.z.prior_logits, dim=-1)

    def log_prob_of(
        self, logs: Float[Tensor, "*B E 3"], z: Float[Tensor, "S B E"]
    ) -> Float[Tensor, "S B"]:
        """Return the log-probability of each z under `logs`, summed over channels."""
        one_hot = nn.functional.one_hot(z.detach().long() + 1, len(VALUES)).to(logs)
        return (logs * one_hot).sum((-2, -1))
