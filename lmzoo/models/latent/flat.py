r"""Autoencoders that see a sentence as one flat vector, without teacher forcing.

    x = e(s_1), .., e(s_{T-1}) side by side, zero vectors at pads
    z = encode(x) + σ ε                          ε ~ N(0, 1), σ = noise_std
    y_1, .., y_{T-1} = decode(z)                 N(·) each
    P(s_t | s) = emission(y_t)

Every y_t depends on every token: this is a reconstruction and no language model.
`<start>` is the same everywhere, so it is left out. Noise is drawn afresh in training;
evaluation averages the scores over `samples` draws that all sequences share, and asks
for one pass only where σ = 0. `next_log_prob` codes the prefix and reads off the position
after it.

S0 DLM55, DLM56; zoo.md 2.4.
"""

from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Score, Task
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.noise import fresh_uniforms, normal, shared_uniforms
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.space import FloatRange, IntRange
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
    samples: int = Field(8, ge=1)
    """Draws of the noise per evaluation."""


class FlatAutoencoder(LanguageModel):
    """Subclasses give the two maps, (T−1)·E to E and back."""

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False

    def __init__(self, config: Any, task: Task, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.encoder, self.decoder = encoder, decoder
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
        return self.encoder(nn.functional.pad(x, (0, 0, 0, most - count)).flatten(1))

    def decode(self, z: Float[Tensor, "S B E"]) -> Float[Tensor, "S B N E"]:
        """y_t of every position, normalised."""
        return normalise_vectors(self.decoder(z).unflatten(-1, (-1, z.shape[-1])), self.config.norm)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        y = self.decode(self.noisy(self.encode(tokens, lengths)))[:, :, : tokens.shape[1] - 1]
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight).mean(0)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        if prefix.shape[1] >= self.task.length:
            raise UserError(
                f"{self.name} was made for {self.task.length} tokens and cannot add one to "
                f"{prefix.shape[1]}; use a longer task.length"
            )
        lengths = torch.full((len(prefix),), prefix.shape[1], device=prefix.device)
        y = self.decode(self.encode(prefix, lengths)[None])[0, :, prefix.shape[1] - 1]
        return self.emission.dense(y, self.embedding.weight)

    def noisy(self, z: Float[Tensor, "B E"]) -> Float[Tensor, "S B E"]:
        """z + σ ε, one draw in training, `samples` in evaluation."""
        if not self.config.noise_std:
            return z[None]
        if self.training:
            u = fresh_uniforms((1, *z.shape), z)
        else:
            u = shared_uniforms((self.config.samples, 1, z.shape[1]), z)
        return z + self.config.noise_std * normal(u)
