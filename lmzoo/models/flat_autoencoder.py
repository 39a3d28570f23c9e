"""Flat autoencoders, which read a sentence as one vector."""

import math
from typing import Annotated, Any, ClassVar

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import pad

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.blocks.latent import EmbeddedModel
from lmzoo.blocks.layers import EmbeddingConfig
from lmzoo.contract import Score, Task, model
from lmzoo.emissions.base import EMISSIONS, EmissionChoice
from lmzoo.functional.noise import fresh_uniforms, normal, shared_uniforms
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.functional.parameters import DrawnModule
from lmzoo.functional.sequence import full_lengths
from lmzoo.functional.token_scores import length_mask, mask_scores
from lmzoo.functional.variational import gaussian_kl, posterior_facts
from lmzoo.types import Lengths, SequenceVectors, Tokens

NoiseStd = Annotated[float, FloatRange(0.01, 2.0, log=True), Field(ge=0)]


@config
class FlatConfig(EmbeddingConfig):
    """Embedding, emission, normaliser and noise. E is also the size of z."""

    emission: EmissionChoice = "mixture"
    norm: Norm = Norm.RMS
    """Normaliser N of the decoder's outputs."""
    noise_std: NoiseStd = 0.0
    """Standard deviation σ of the noise on z, in training and in evaluation."""
    gaussian: bool = False
    """Whether z has a learned Gaussian posterior and prior. Excludes `noise_std`."""
    samples: int = Field(8, ge=1)
    """Number of noise draws per evaluation."""

    @model_validator(mode="after")
    def _refuse_two_noises(self) -> Any:
        if self.gaussian and self.noise_std:
            raise UserError(
                f"noise_std={self.noise_std:g}: gaussian=True learns its own noise; "
                "set one of the two"
            )
        return self


class GaussianCode(DrawnModule):
    """Posterior and prior of the code, drawn as by S0, with one variance: M, μ_0 and log β_0."""

    def __init__(self, width: int):
        super().__init__()
        self.set_drawn(width, to_mean=(width, width))
        self.set_drawn(2, prior_mean=(width,), log_beta=(width,))

    def mean(self, h: SequenceVectors) -> SequenceVectors:
        """Return μ."""
        # A residual: at a small M the code is that of the encoder.
        return h @ self.to_mean + h

    @property
    def std(self) -> Float[Tensor, "E"]:
        """The standard deviation 1/β_0."""
        return self.log_beta.neg().exp()

    def kl(self, mean: SequenceVectors) -> Float[Tensor, "B"]:
        """Return KL(q ‖ p) of each sequence, in nats."""
        by_channel = gaussian_kl(mean, self.log_beta, self.prior_mean, self.log_beta)
        return by_channel.sum(-1)


class FlatAutoencoder(EmbeddedModel):
    """Base class: a subclass passes an encoder from (T−1)·E numbers to E, and a decoder back.

        x = [ e(s_1); ..; e(s_{T-1}) ]               zero vectors at pads
        z = encode(x) + σ ε                          ε ~ N(0, 1), σ = noise_std
        y_1, .., y_{T-1} = decode(z)                 each normalised by N
        P(s_t | s) = emission(y_t)
        gaussian:  z = μ + ε / β_0, μ = encode(x) M + encode(x), and training maximises
                   Σ_t log P(s_t | s) − KL(N(μ, β_0^{-2}) ‖ N(μ_0, β_0^{-2}))

    x is ((T-1)·E), z and y_t are (E). `<start>` is the same in all sentences and is left out. Every
    y_t depends on every token, so the score is a reconstruction, not a language model's
    log-likelihood.

    Training draws new noise in every step. Evaluation averages the scores over `samples` draws,
    which are the same for all sequences; without noise it is one pass. With gaussian=True the
    training objective is a lower bound of log P(s); the score is still the reconstruction.
    `next_log_prob` encodes the prefix and returns the distribution at the position after it,
    averaged over the noise.

    Source: S0 (DLM55, DLM56); Vincent et al. 2008 (denoising).
    """

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False

    def __init__(
        self,
        config: Any,
        task: Task,
        encoder: nn.Module,
        decoder: nn.Module,
    ):
        super().__init__(config, task)
        self.encoder = encoder
        self.decoder = decoder
        if config.gaussian:
            self.code = GaussianCode(config.width)
        else:
            self.code = None
        self.emission = EMISSIONS.build(config.emission, config.width, config.norm)

    def encode(self, tokens: Tokens, lengths: Lengths) -> SequenceVectors:
        """Return z before noise, of sequences that are no longer than the task's."""
        count = tokens.shape[1]
        self.require_length(count)
        mask = length_mask(lengths, count)
        x = self.embedding(tokens) * mask[..., None]
        x = x[:, 1:]
        # The encoder is one linear map of all positions, so shorter sequences are padded by zeros.
        missing = self.task.length - count
        whole = pad(x, (0, 0, 0, missing))
        h = self.encoder(whole.flatten(1))
        if self.code is None:
            return h
        return self.code.mean(h)

    def decode(self, z: Float[Tensor, "S B E"]) -> Float[Tensor, "S B N E"]:
        """Return the normalised y_t of every position."""
        width = z.shape[-1]
        flat = self.decoder(z)
        y = flat.unflatten(-1, (-1, width))
        return normalise_vectors(y, self.config.norm)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        z = self.encode(tokens, lengths)
        return self.mean_scores(tokens, z)

    def mean_scores(self, tokens: Tokens, z: SequenceVectors) -> Float[Tensor, "B T-1"]:
        """Return log P(s_t | s), averaged over the noise on z."""
        targets = tokens[:, 1:]
        y = self.decode(self.add_noise(z))
        y = y[:, :, : targets.shape[1]]
        scores = self.emission.log_prob(y, targets, self.table)
        return scores.mean(0)

    def objective(self, tokens: Tensor, lengths: Tensor, *sources: Tensor) -> Tensor:
        """Return the scores; with gaussian=True, minus each token's equal share of the KL."""
        if self.code is None:
            return super().objective(tokens, lengths, *sources)
        mean = self.encode(tokens, lengths)
        count = (lengths - 1).clamp_min(1)
        # A share of the KL for each token, so that the sum over tokens has all of it.
        kl = self.code.kl(mean) / count
        scores = self.mean_scores(tokens, mean)
        return mask_scores(scores - kl[:, None], lengths)

    def report(
        self,
        tokens: Tensor,
        lengths: Tensor,
        *sources: Tensor,
    ) -> dict[str, float]:
        """Return KL in nats per sequence, μ, σ and active units; {} without a posterior."""
        if self.code is None:
            return {}
        mean = self.encode(tokens, lengths)
        # The KL is that of the sequence, unlike in the objective.
        kl = self.code.kl(mean)
        return posterior_facts(kl, mean, self.code.std)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        n = prefix.shape[1]
        self.require_length(n + 1)
        code = self.encode(prefix, full_lengths(prefix))
        z = self.add_noise(code)
        # The decoder has no y of `<start>`: index n − 1 is the token after n tokens.
        y = self.decode(z)[:, :, n - 1]
        dense = self.emission.dense(y, self.table)  # S B V
        samples = len(dense)
        # The mean of probabilities, not of their logarithms, so that they sum to one.
        return dense.logsumexp(0) - math.log(samples)

    def add_noise(self, z: SequenceVectors) -> Float[Tensor, "S B E"]:
        """Return z plus noise: one draw in training, `samples` draws in evaluation."""
        if self.code is not None:
            std = self.code.std
        else:
            std = self.config.noise_std
            if not std:
                return z[None]
        if self.training:
            # In training each sequence has a draw of its own, new in every step.
            u = fresh_uniforms((1,) + z.shape, z)
        else:
            # One sequence's noise for all, so that a score does not depend on the batch.
            shape = (self.config.samples, 1, z.shape[1])
            u = shared_uniforms(shape, z)
        return z + std * normal(u)


@model(
    "linear_autoencoder",
    aliases=("DLM55",),
    family="autoencoder",
    document="S0",
    source="S0",
)
class LinearAutoencoder(FlatAutoencoder):
    """Autoencoder with one affine encoder and decoder, optionally denoising or Gaussian.

        x = [ e(s_1); ..; e(s_{T-1}) ]
        z = x A + a,   [ y_1; ..; y_{T-1} ] = z D + d
        P(s_t | s) = emission(N(y_t))

    x is ((T−1)·E), z and y_t are (E), A is ((T−1)·E, E), D is (E, (T−1)·E). The map from x to the
    y_t is affine with a linear part of rank at most E. Noise on z: see `FlatAutoencoder`.

    Source: Baldi & Hornik 1989; Vincent et al. 2008 (denoising); S0 (DLM55).
    """

    Config = FlatConfig

    def __init__(self, config: FlatConfig, task: Task):
        width = config.width
        # All positions at once: the length is part of the weights.
        flat = (task.length - 1) * width
        encoder = nn.Linear(flat, width)
        decoder = nn.Linear(width, flat)
        super().__init__(config, task, encoder, decoder)


Expansion = Annotated[int, IntRange(1, 16, log=True), Field(ge=1)]


@model(
    "mlp_autoencoder",
    aliases=("DLM56",),
    family="autoencoder",
    document="S0",
    source="S0",
)
class MLPAutoencoder(FlatAutoencoder):
    """Autoencoder with a two-layer encoder and decoder, optionally denoising or Gaussian.

        x = [ e(s_1); ..; e(s_{T-1}) ]
        z = relu( relu(x A_1 + a_1) A_2 + a_2 )                   (T−1)·E → expansion · E → E
        [ y_1; ..; y_{T-1} ] = relu(z D_1 + d_1) D_2 + d_2        E → expansion · E → (T−1)·E
        P(s_t | s) = emission(N(y_t))

    x is ((T−1)·E), z and y_t are (E). Noise on z: see `FlatAutoencoder`.
    """

    @config
    class Config(FlatConfig):
        """Flat autoencoder fields and the hidden size."""

        expansion: Expansion = 10
        """Hidden size as a multiple of E."""

    def __init__(self, config: Config, task: Task):
        width = config.width
        flat = (task.length - 1) * width
        hidden = config.expansion * width
        encoder = nn.Sequential(
            nn.Linear(flat, hidden),
            nn.ReLU(),
            nn.Linear(hidden, width),
            nn.ReLU(),
        )
        decoder = nn.Sequential(
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, flat),
        )
        super().__init__(config, task, encoder, decoder)
