r"""A recurrent VAE whose latent is a vector of minus ones, zeros and ones.

    z ∈ {−1, 0, 1}^E
    q(z_e | s) = softmax_3( (h_enc M)_e )        p(z_e) = softmax_3( π_e )

A draw has no derivative, so q's gradient through the reconstruction R(z) is estimated:

    score     ½ Σ_k (R(z_k) − R(z_other)) ∇ log q(z_k | s)     two draws, unbiased
    gumbel    z = hard + (soft − soft.detach()), soft = softmax((logits + Gumbel) / τ)

The published code let no gradient through the draw at all, so its encoder learned from
the KL alone.

Kool, van Hoof & Welling 2019 (the other draw as baseline); Jang, Gu & Poole 2017
(arXiv:1611.01144, straight-through); S0 DLM52; zoo.md 2.4.
"""

from enum import StrEnum

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import Task, model, scored_mask
from lmzoo.functional.divergence import categorical_kl
from lmzoo.functional.draw import uniform
from lmzoo.functional.initialisers import Draw, fill
from lmzoo.functional.noise import gumbel
from lmzoo.models.latent.vae import VAE, VAEConfig, share

VALUES = (-1.0, 0.0, 1.0)


class Estimator(StrEnum):
    """How the gradient gets past the draw."""

    SCORE = "score"
    GUMBEL = "gumbel"


class TernaryLatent(nn.Module):
    """The logits of q and of p."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_logits = nn.Parameter(torch.empty(width, len(VALUES) * width))
        self.prior_logits = nn.Parameter(torch.empty(width, len(VALUES)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """M from U(E), prior logits from U(3)."""
        with torch.no_grad():
            self.to_logits.copy_(uniform(tuple(self.to_logits.shape), len(self.to_logits)))
            self.prior_logits.copy_(uniform(tuple(self.prior_logits.shape), len(VALUES)))

    def redraw(self, name: str, draw: Draw) -> None:
        """By a named scheme; M is written the other way round, its rows are what comes in."""
        fill(self.to_logits.mT if name == "to_logits" else self.prior_logits, draw)


@model("gru_ternary_vae", aliases=("DLM52",), family="vae", document="S0", source="S0 (code)")
class TernaryVAE(VAE):
    """GRU encoder and decoder with a ternary sentence latent."""

    @config
    class Config(VAEConfig):
        """How gradients reach the encoder; `temperature` is τ, for `gumbel` only."""

        estimator: Estimator = Estimator.GUMBEL
        temperature: float = Field(1.0, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.z = TernaryLatent(config.width)
        self.noise_shape = (config.width, len(VALUES))
        self.draws = 2 if config.estimator is Estimator.SCORE else 1

    def draw(self, h: Tensor, u: Tensor) -> Tensor:
        noisy = self.log_q(h) + gumbel(u)
        hard = nn.functional.one_hot(noisy.argmax(-1), len(VALUES)).to(h)
        if self.training and self.config.estimator is Estimator.GUMBEL:
            soft = torch.softmax(noisy / self.config.temperature, dim=-1)
            # In this order the draw stays exactly ternary.
            hard = hard + (soft - soft.detach())
        return hard @ h.new_tensor(VALUES)

    def prior_draw(self, u: Tensor) -> Tensor:
        values = self.z.prior_logits.new_tensor(VALUES)
        return values[(self.log_p() + gumbel(u)).argmax(-1)]

    def kl(self, h: Tensor) -> Tensor:
        return categorical_kl(self.log_q(h), self.log_p()).sum(-1)

    def log_ratio(self, z: Tensor, h: Tensor) -> Tensor:
        return self.log_chosen(self.log_p(), z) - self.log_chosen(self.log_q(h), z)

    def reconstruction(self, tokens: Tensor, lengths: Tensor, z: Tensor, h: Tensor) -> Tensor:
        told = self.decode(tokens, z)
        if not self.training or self.config.estimator is Estimator.GUMBEL:
            return told
        total = torch.where(scored_mask(tokens, lengths)[:, 1:], told, 0).sum(-1).detach()
        log_q = self.log_chosen(self.log_q(h), z)
        # Zero in value: it only carries the estimated gradient.
        return told + share((total - total.flip(0)) * (log_q - log_q.detach()), lengths)

    def log_q(self, h: Float[Tensor, "B E"]) -> Float[Tensor, "B E 3"]:
        """Log q(z_e | s)."""
        return torch.log_softmax((h @ self.z.to_logits).unflatten(-1, (-1, 3)), dim=-1)

    def log_p(self) -> Float[Tensor, "E 3"]:
        """Log p(z_e)."""
        return torch.log_softmax(self.z.prior_logits, dim=-1)

    def log_chosen(
        self, logs: Float[Tensor, "*B E 3"], z: Float[Tensor, "S B E"]
    ) -> Float[Tensor, "S B"]:
        """The log-probability of each z, summed over channels."""
        which = nn.functional.one_hot(z.detach().long() + 1, len(VALUES)).to(logs)
        return (logs * which).sum((-2, -1))
