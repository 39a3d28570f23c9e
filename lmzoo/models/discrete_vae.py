"""A VAE whose latent vector has discrete values."""

from enum import StrEnum
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from lmzoo.base.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.noise import gumbel
from lmzoo.functional.parameters import Draw, DrawnModule, draw_matrices
from lmzoo.functional.token_scores import scored_mask
from lmzoo.functional.variational import categorical_kl
from lmzoo.models.vae import VAE, VAEConfig, share_over_tokens
from lmzoo.types import SequenceVectors

Estimator = StrEnum("Estimator", "SCORE GUMBEL")
"""Gradient estimator of the discrete draw."""


class DiscreteLatent(DrawnModule):
    """The parameters M and π: the logits of q and of p."""

    def __init__(self, width: int, values: int):
        super().__init__()
        self.set_drawn(width, to_logits=(width, values * width))
        self.set_drawn(values, prior_logits=(width, values))

    def redraw(self, name: str, draw: Draw):
        """Draw with a named initialiser. M is stored as (in, out), so it is transposed."""
        if name == "to_logits":
            draw_matrices(self.to_logits.mT, draw)
        else:
            draw_matrices(self.prior_logits, draw)


@config
class DiscreteVAEConfig(VAEConfig):
    """VAE fields and the gradient estimator."""

    estimator: Estimator = Estimator.GUMBEL
    temperature: float = Field(1.0, gt=0)
    """Temperature τ of the gumbel estimator."""


@model(
    "gru_ternary_vae",
    aliases=("DLM52",),
    family="vae",
    document="S0",
    source="S0 (code)",
)
class TernaryVAE(VAE):
    """VAE with a GRU encoder and decoder and a ternary sentence latent.

        z ∈ {−1, 0, 1}^E
        q(z_e | s) = softmax_3( (h_enc M)_e )        p(z_e) = softmax_3( π_e )

    z and h_enc are (E), M is (E, 3·E), π is (E, 3). Encoder and decoder are those of
    `encoder_decoder.py`, the bound that of `vae.py`. A discrete draw has no derivative, so the
    gradient of the reconstruction R(z) = Σ_t log P(s_t | s_<t, z) with respect to q is estimated:

        score     ½ Σ_k (R(z_k) − R(z_other)) ∇ log q(z_k | s)     two draws, unbiased
        gumbel    z = hard + (soft − soft.detach()), soft = softmax((logits + Gumbel) / τ)

    The S0 code passes no gradient through the draw; its encoder learns from the KL only.

    Kool, van Hoof & Welling 2019 (the other draw as baseline); Jang, Gu & Poole 2017
    (arXiv:1611.01144, straight-through).
    """

    Config = DiscreteVAEConfig
    values: ClassVar[tuple[float, ...]] = (-1.0, 0.0, 1.0)
    """Consecutive integers."""

    def __init__(self, config: DiscreteVAEConfig, task: Task):
        super().__init__(config, task)
        width = config.width
        count = len(self.values)
        self.z = DiscreteLatent(width, count)
        self.noise_shape = (width, count)
        # The estimate compares two draws of one sentence.
        if config.estimator is Estimator.SCORE:
            self.training_samples = 2
        self.estimated_gradient = f"{config.estimator}, of discrete draws"

    def sample_posterior(self, h: Tensor, u: Tensor) -> Tensor:
        # The largest of log-probabilities plus Gumbel noise is a draw (the Gumbel-max trick).
        noisy = self.log_q(h) + gumbel(u)
        drawn = noisy.argmax(-1)
        hard = one_hot(drawn, len(self.values)).to(h)
        if self.training and self.config.estimator is Estimator.GUMBEL:
            logits = noisy / self.config.temperature
            soft = logits.softmax(-1)
            # With these parentheses the value stays exactly one of the three values.
            hard = hard + (soft - soft.detach())
        return hard @ self._levels(h)

    def sample_prior(self, u: Tensor) -> Tensor:
        noisy = self.log_p() + gumbel(u)
        # By the Gumbel-max trick, as in `sample_posterior`.
        levels = self._levels(self.z.prior_logits)
        return levels[noisy.argmax(-1)]

    def kl(self, h: Tensor) -> Tensor:
        by_channel = categorical_kl(self.log_q(h), self.log_p())
        return by_channel.sum(-1)

    def moments(self, h: Tensor) -> tuple[Tensor, Tensor]:
        q = self.log_q(h).exp()
        values = self._levels(h)
        mean = q @ values
        mean_square = q @ values.square()
        variance = mean_square - mean.square()
        # Rounding may leave a variance just below 0.
        std = variance.clamp_min(0).sqrt()
        return mean, std

    def log_ratio(self, z: Tensor, h: Tensor) -> Tensor:
        log_p = self.log_prob_of(self.log_p(), z)
        log_q = self.log_prob_of(self.log_q(h), z)
        return log_p - log_q

    def reconstruction(
        self,
        tokens: Tensor,
        lengths: Tensor,
        z: Tensor,
        h: Tensor,
    ) -> Tensor:
        scores = self.decode(tokens, z)
        is_gumbel = self.config.estimator is Estimator.GUMBEL
        if not self.training or is_gumbel:
            return scores
        scored = scored_mask(tokens, lengths)[:, 1:]
        real = torch.where(scored, scores, 0)
        total = real.sum(-1).detach()
        log_q = self.log_prob_of(self.log_q(h), z)
        # The added term is 0 and has the estimated gradient. Flipped, each draw is the other's
        # baseline.
        advantage = total - total.flip(0)
        zero = advantage * (log_q - log_q.detach())
        return scores + share_over_tokens(zero, lengths)

    def log_q(self, h: SequenceVectors) -> Float[Tensor, "B E K"]:
        """Return log q(z_e | s) of the three values."""
        logits = h @ self.z.to_logits
        by_channel = logits.unflatten(-1, (-1, len(self.values)))
        return by_channel.log_softmax(-1)

    def log_p(self) -> Float[Tensor, "E K"]:
        """Return log p(z_e) of the three values."""
        return self.z.prior_logits.log_softmax(-1)

    def log_prob_of(
        self, logs: Float[Tensor, "*B E K"], z: Float[Tensor, "S B E"]
    ) -> Float[Tensor, "S B"]:
        """Return the log-probability of each z under `logs`, summed over channels."""
        # The values are consecutive integers: the distance to the first is the index.
        index = (z.detach() - self.values[0]).long()
        chosen = one_hot(index, len(self.values)).to(logs)
        return (logs * chosen).sum((-2, -1))

    def _levels(self, like: Tensor) -> Float[Tensor, "K"]:
        """Return the values; a copy of the tuple would wait for a GPU."""
        count = len(self.values)
        steps = torch.arange(count, device=like.device)
        return steps.to(like) + self.values[0]
