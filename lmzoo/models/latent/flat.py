r"""Autoencoders that see a sentence as one flat vector, without teacher forcing.

    x = e(s_1), .., e(s_{T-1}) side by side, zero vectors at pads
    z = encode(x) + σ ε                          ε ~ N(0, 1), σ = noise_std
    y_1, .., y_{T-1} = decode(z)                 N(·) each
    P(s_t | s) = emission(y_t)
    gaussian:  z = μ + ε / β_0, μ = encode(x) M + encode(x), and training raises
               Σ_t log P(s_t | s) − KL(N(μ, β_0^{-2}) ‖ N(μ_0, β_0^{-2}))

Every y_t depends on every token: this is a reconstruction and no language model.
`<start>` is the same everywhere, so it is left out. Noise is drawn afresh in training;
evaluation averages the scores over `samples` draws that all sequences share, and asks
for one pass only where there is none. The score is the reconstruction in all three; with
`gaussian` the objective is a bound on log P(s). `next_log_prob` codes the prefix and reads
off the position after it; under noise it is the mean of the probabilities, a distribution.

S0 DLM55, DLM56; zoo.md 2.4.
"""

import math
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Score, Task, mask_unscored
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.noise import fresh_uniforms, normal, shared_uniforms
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.models.latent.gaussian_code import GaussianCode
from lmzoo.search_space import FloatRange, IntRange
from lmzoo.types import Lengths, Tokens


@config
class FlatConfig:
    """Sizes, parts, and the noise on the code."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    """E, of the embeddings and of z."""
    emission: Annotated[Any, EMISSIONS] = "mixture"
    norm: Norm = Norm.RMS
    embedding_std: float | None = Field(None, gt=0)
    noise_std: Annotated[float, FloatRange(0.01, 2.0, log=True)] = Field(0.0, ge=0)
    """σ; above 0 it is a denoising autoencoder, in training and in evaluation."""
    gaussian: bool = False
    """A learned Gaussian on z and a learned prior, in place of σ."""
    samples: int = Field(8, ge=1)
    """Draws of the noise per evaluation."""

    @model_validator(mode="after")
    def _one_noise(self) -> Any:
        if self.gaussian and self.noise_std:
            raise UserError(
                f"noise_std={self.noise_std:g}: gaussian=True learns its own; drop one of them"
            )
        return self


class FlatAutoencoder(LanguageModel):
    """Subclasses give the two maps, (T−1)·E to E and back."""

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False

    def __init__(self, config: Any, task: Task, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.encoder, self.decoder = encoder, decoder
        self.code = GaussianCode(config.width) if config.gaussian else None
        self.emission = EMISSIONS.build(config.emission, config.width, config.norm)

    def encode(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B E"]:
        """z before noise.

        Raises:
            UserError: sequences longer than the model was made for.
        """
        count, most = tokens.shape[1], self.task.length
        if count > most:
            raise UserError(
                f"{self.name} was made for {most} tokens and got {count}; "
                "use shorter sequences or a longer task.length"
            )
        real = torch.arange(count, device=tokens.device) < lengths[:, None]
        x = (self.embedding(tokens) * real[..., None])[:, 1:]
        h = self.encoder(nn.functional.pad(x, (0, 0, 0, most - count)).flatten(1))
        return h if self.code is None else self.code.mean(h)

    def decode(self, z: Float[Tensor, "S B E"]) -> Float[Tensor, "S B N E"]:
        """y_t of every position, normalised."""
        return normalise_vectors(self.decoder(z).unflatten(-1, (-1, z.shape[-1])), self.config.norm)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.told(tokens, self.encode(tokens, lengths))

    def told(self, tokens: Tokens, z: Float[Tensor, "B E"]) -> Float[Tensor, "B T-1"]:
        """Log P(s_t | s), averaged over the noise on z."""
        y = self.decode(self.noisy(z))[:, :, : tokens.shape[1] - 1]
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight).mean(0)

    def objective(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        """The scores; with `gaussian` less each token's even share of the KL."""
        if self.code is None:
            return super().objective(tokens, lengths, *given)
        mean = self.encode(tokens, lengths)
        paid = self.code.kl(mean) / (lengths - 1).clamp_min(1)
        return mask_unscored(tokens, lengths, self.told(tokens, mean) - paid[:, None])

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        if prefix.shape[1] >= self.task.length:
            raise UserError(
                f"{self.name} was made for {self.task.length} tokens and cannot add one to "
                f"{prefix.shape[1]}; use a longer task.length"
            )
        lengths = torch.full((len(prefix),), prefix.shape[1], device=prefix.device)
        y = self.decode(self.noisy(self.encode(prefix, lengths)))[:, :, prefix.shape[1] - 1]
        dense = self.emission.dense(y, self.embedding.weight)  # S B V
        return torch.logsumexp(dense, dim=0) - math.log(len(dense))

    def noisy(self, z: Float[Tensor, "B E"]) -> Float[Tensor, "S B E"]:
        """z and its noise, one draw in training, `samples` in evaluation."""
        spread = self.config.noise_std if self.code is None else self.code.spread
        if self.code is None and not spread:
            return z[None]
        if self.training:
            u = fresh_uniforms((1, *z.shape), z)
        else:
            u = shared_uniforms((self.config.samples, 1, z.shape[1]), z)
        return z + spread * normal(u)
