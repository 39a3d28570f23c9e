r"""Base class of sentence VAEs: the score is a lower bound on log P(s).

    log P(s) ≥ E_{q(z|s)}[ Σ_t log P(s_t | s_<t, z) ] − KL(q(z|s) ‖ p(z))
    log_prob_t = mean over draws of log P(s_t | s_<t, z) − KL / (n − 1)

The closed-form KL is divided equally among the n − 1 scored tokens, so only the total of a sequence
is a bound. Training uses new draws in every step. Evaluation uses `samples` draws from noise that
is the same for all sequences (`lmzoo.functional.noise`): it is repeatable, and a bound in
expectation over that noise.

`next_log_prob` draws z_1..z_S from the prior, S = `samples`, and returns the mixture
Σ_i P(i | s_<t) P(v | s_<t, z_i), which is normalised and causal. It converges to P(v | s_<t) of the
model as S grows. The decoding state holds one decoder state and one log-evidence per draw.

Source: Kingma & Welling 2014 (arXiv:1312.6114); Bowman et al. 2016 (arXiv:1511.06349).
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.blocks.start_mixture import MixtureState, StartMixture
from lmzoo.cells import stack
from lmzoo.cells.base import Cell
from lmzoo.contract import DecodingState, Score
from lmzoo.functional.noise import fresh_uniforms, shared_uniforms
from lmzoo.functional.normalise import Norm
from lmzoo.functional.token_scores import scored_mask
from lmzoo.functional.variational import importance_bound, posterior_facts
from lmzoo.models.encoder_decoder import EncoderDecoderConfig, SentenceEncoderDecoder
from lmzoo.types import Lengths, SequenceVectors, Tokens

BOUND_SAMPLES = 64
"""Draws of the importance-weighted bound in a report."""


@config
class VAEConfig(EncoderDecoderConfig):
    """Encoder, decoder and the number of samples."""

    samples: int = Field(8, ge=1)
    """Number S of draws of z per evaluation."""


class VAE(StartMixture, SentenceEncoderDecoder):
    """Base class of VAEs: a subclass defines the posterior q, the prior p and their KL."""

    Config = VAEConfig
    score: ClassVar[Score] = Score.LOWER_BOUND
    training_samples: int = 1
    """Number of draws of z per sequence and training step."""
    noise_shape: tuple[int, ...]
    """Shape of the uniform noise of one draw."""

    @abstractmethod
    def sample_posterior(
        self, h: SequenceVectors, u: Float[Tensor, "S ..."]
    ) -> Float[Tensor, "S B Z"]:
        """Return draws z ~ q(· | h_enc), computed from uniform noise u."""

    @abstractmethod
    def sample_prior(self, u: Float[Tensor, "S ..."]) -> Float[Tensor, "S E"]:
        """Return draws z ~ p, computed from uniform noise u."""

    @abstractmethod
    def kl(self, h: SequenceVectors) -> Float[Tensor, "B"]:
        """Return KL(q(· | h_enc) ‖ p) in closed form, in nats."""

    @abstractmethod
    def moments(self, h: SequenceVectors) -> tuple[SequenceVectors, SequenceVectors]:
        """Return mean and standard deviation of what the decoder reads, under q(· | h_enc)."""

    @abstractmethod
    def log_ratio(
        self,
        z: Float[Tensor, "S B Z"],
        h: SequenceVectors,
    ) -> Float[Tensor, "S B"]:
        """Return log p(z) − log q(z | h_enc), whose mean under q is −KL."""

    def encode_sentence(self, tokens: Tokens, lengths: Lengths) -> SequenceVectors:
        """Return h_enc of the scored tokens s_{n-1}, .., s_1."""
        # Without `<start>`, which says nothing of the sentence.
        return self.encode(tokens[:, 1:], lengths - 1)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        h = self.encode_sentence(tokens, lengths)
        noise = self._noise(h)
        z = self.sample_posterior(h, noise)
        scores = self.reconstruction(tokens, lengths, z, h)
        kl = share_over_tokens(self.kl(h), lengths)
        return scores.mean(0) - kl

    def reconstruction(
        self,
        tokens: Tokens,
        lengths: Lengths,
        z: Float[Tensor, "S B Z"],
        h: SequenceVectors,
    ) -> Float[Tensor, "S B T-1"]:
        """Return log P(s_t | s_<t, z). A subclass may add a zero term with a gradient."""
        return self.decode(tokens, z)

    @property
    def generates(self) -> bool:
        """True although scores read the whole sentence: `next_log_prob` does not."""
        return not self.leaks

    def outputs_by_start(self, tokens: Tensor) -> Tensor:
        # A draw of the prior is an initial state: starts are its samples.
        z = self._prior_draws()[:, None]
        repeated = z.expand(-1, len(tokens), -1)
        return self.outputs(tokens, repeated)

    def begin_samples(
        self,
        batch: int,
        *sources: Tensor,
        generator: torch.Generator | None = None,
    ) -> DecodingState:
        # A normaliser over time reads the whole prefix again at each step: the slow way.
        if self.config.norm is Norm.TIME_STD:
            return super().begin_samples(batch, *sources)
        shape = (batch,) + self.noise_shape
        u = fresh_uniforms(shape, self.table, generator)
        z = self.sample_prior(u)
        start = self._starts_from(z)
        state = stack.begin(self._cells, start[:, None])
        # One draw for each sentence: there is no mixture to weigh.
        return MixtureState(state, None, None, None)

    def iw_bound(
        self,
        tokens: Tokens,
        lengths: Lengths,
        z: Float[Tensor, "S B Z"],
        h: SequenceVectors,
    ) -> Float[Tensor, "B"]:
        """Return the importance-weighted bound on each sequence's log P, from draws z of q."""
        scored = scored_mask(tokens, lengths)[:, 1:]
        scores = self.decode(tokens, z) * scored
        # Of whole sequences: the bound is no sum over tokens.
        log_weights = scores.sum(-1) + self.log_ratio(z, h)
        return importance_bound(log_weights)

    def report(
        self,
        tokens: Tokens,
        lengths: Lengths,
        *sources: Tensor,
    ) -> dict[str, float]:
        """Return KL and importance-weighted bound in nats per sequence, μ, σ and active units.

        A latent value is active if the variance of its posterior mean over sequences exceeds 0.01
        (Burda et al. 2016); a collapsed posterior has none.
        """
        h = self.encode_sentence(tokens, lengths)
        mean, std = self.moments(h)
        shape = (BOUND_SAMPLES, len(h)) + self.noise_shape
        # Fresh noise: the bound of the fixed samples of a score would be another number.
        u = fresh_uniforms(shape, h)
        z = self.sample_posterior(h, u)
        bound = self.iw_bound(tokens, lengths, z, h)
        facts = posterior_facts(self.kl(h), mean, std)
        facts[f"bound of {BOUND_SAMPLES} samples"] = -bound.mean().item()
        return facts

    def _prior_draws(self) -> Float[Tensor, "S E"]:
        """Return the draws z ~ p, which are the same for all prefixes."""
        shape = (self.config.samples,) + self.noise_shape
        u = shared_uniforms(shape, self.table)
        return self.sample_prior(u)

    @property
    def _cells(self) -> list[Cell]:
        return [self.cell]

    @property
    def _num_starts(self) -> int:
        return self.config.samples

    def _starts_from(self, z: Float[Tensor, "S E"]) -> Float[Tensor, "S _"]:
        start = self.cell.constrain_start(z)
        # Every vector of the state begins as z.
        return start.repeat(1, self.cell.num_state_vectors)

    def _start_vectors(self) -> Tensor:
        return self._starts_from(self._prior_draws())

    def _start_log_weights(self) -> Float[Tensor, "S"]:
        # Samples weigh the same.
        weights = self.table.new_zeros(self.config.samples)
        return weights.log_softmax(0)

    def _noise(self, h: SequenceVectors) -> Float[Tensor, "S ..."]:
        if self.training:
            return fresh_uniforms((self.training_samples, len(h)) + self.noise_shape, h)
        # The same noise for all sequences: a score does not depend on the batch.
        return shared_uniforms((self.config.samples, 1) + self.noise_shape, h)


def share_over_tokens(
    total: Float[Tensor, "*S B"],
    lengths: Lengths,
) -> Float[Tensor, "*S B 1"]:
    """Divide a number of each sequence equally among its scored tokens."""
    count = (lengths - 1).clamp_min(1)
    return (total / count)[..., None]
