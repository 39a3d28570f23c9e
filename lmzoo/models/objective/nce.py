r"""A language model that is trained by telling its words from noise.

    c(w, h) = e(w) · h + b_w [− log Z]          h = cell over the prefix, h_0 = 1
    P(w | h) = e^c(w, h) / Σ_v e^c(v, h)
    raised     log σ(s⁺) + Σ_{j=1..k} log σ(−s_j),   w_j ~ q     (functional/contrast.py)

    contrast=nce                 s = c − log k q: training brings Σ_v e^c to 1 by itself
    contrast=negative_sampling   s = c: at its optimum P ∝ p̃ / q, so that only with uniform
                                 noise (noise_exponent=0) the model is that of the data

The score divides by the sum over all words, so it is an exact log-likelihood whatever was
raised. Likelihood itself with Z taken as 1 has no maximum: it rises with b for ever.
b starts at −log V, where Σ_v e^c is about 1; `learned_log_z` starts it at 0 and log Z at log V.

Gutmann & Hyvärinen 2010; Mnih & Teh 2012 (arXiv:1206.6426); S3; zoo.md 4.3.
"""

import math
from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.noise_words import NoiseWords
from lmzoo.catalogue import preset
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS
from lmzoo.config import config
from lmzoo.contract import Carried, LanguageModel, Task, mask_unscored, model, scored_mask
from lmzoo.functional.initialisers import Draw
from lmzoo.functional.noise_contrastive import contrast
from lmzoo.search_space import Choice, IntRange
from lmzoo.types import Lengths, Tokens, TokenScores


class Contrast(StrEnum):
    """What is compared with zero."""

    NCE = "nce"
    NEGATIVE_SAMPLING = "negative_sampling"


@model(
    "nce",
    family="objective",
    document="S3",
    source="Gutmann & Hyvärinen 2010; Mnih & Teh 2012 (arXiv:1206.6426)",
)
class NoiseContrastive(LanguageModel):
    """Recurrent model trained by noise-contrastive estimation, scored exactly."""

    @config
    class Config:
        """Sizes, and what the words are compared with."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        cell: Annotated[Any, CELLS] = "lstm"
        contrast: Contrast = Contrast.NCE
        negatives: Annotated[int, IntRange(1, 64, log=True)] = Field(16, ge=1)
        """k noise words to each word of the data."""
        noise_exponent: Annotated[float, Choice((0.0, 0.75, 1.0))] = Field(1.0, ge=0)
        """α of q(w) ∝ n_w^α."""
        learned_log_z: bool = False
        embedding_std: float | None = Field(None, gt=0)

    log_z: nn.Parameter | None

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.cell = CELLS.build(config.cell, config.width, task.length)
        self.bias = nn.Parameter(torch.empty(task.vocab))
        log_z = nn.Parameter(torch.empty(())) if config.learned_log_z else None
        self.register_parameter("log_z", log_z)
        self.noise = NoiseWords(task.vocab, config.noise_exponent)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A sum over all words that is about 1."""
        apart = math.log(self.task.vocab)
        nn.init.constant_(self.bias, 0.0 if self.config.learned_log_z else -apart)
        if self.log_z is not None:
            nn.init.constant_(self.log_z, apart)

    def redraw(self, name: str, draw: Draw) -> None:
        """By no named scheme: b and log Z are where Σ_v e^c is about 1."""

    @property
    def state_size(self) -> int | None:
        return self.cell.state_size

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        dense = torch.log_softmax(self.unnormalised(tokens[:, :-1]), dim=-1)
        return dense.gather(-1, tokens[:, 1:, None])[..., 0]

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return torch.log_softmax(self.unnormalised(prefix)[:, -1], dim=-1)

    def begin(self, batch: int, *given: Tensor) -> Carried:
        return stack.begin([self.cell], self._start(batch)[:, None])

    def advance(self, carried: Carried, token: Tensor) -> tuple[Tensor, Carried]:
        h, carried = stack.advance([self.cell], self.embedding(token), carried)
        return torch.log_softmax(self._compared(h[:, 0]), dim=-1), carried

    def objective(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> TokenScores:
        if self.training:
            self.noise.see(tokens[scored_mask(tokens, lengths)])
        words, h = tokens[:, 1:], self._hidden(tokens[:, :-1])
        others = self.noise.draw((*words.shape, self.config.negatives))
        words = torch.cat([words[..., None], others], dim=-1)
        s = (self.embedding(words) @ h[..., None])[..., 0] + self._offsets()[words]
        if self.config.contrast is Contrast.NCE:
            s = s - math.log(self.config.negatives) - self.noise.log_q(s)[words]
        return mask_unscored(tokens, lengths, contrast(s[..., 0], s[..., 1:]))

    def log_normalisers(self, tokens: Tokens, lengths: Lengths) -> TokenScores:
        """log Σ_v e^c(v, h) before each scored token: 0 if training has normalised the model."""
        log_z = self.unnormalised(tokens[:, :-1]).logsumexp(-1)
        return mask_unscored(tokens, lengths, log_z)

    def report(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> dict[str, float]:
        """How near training has brought Σ_v e^c to 1, over the contexts of scored tokens."""
        log_z = self.log_normalisers(tokens, lengths)[scored_mask(tokens, lengths)]
        return {"log Z": log_z.mean().item(), "spread of log Z": log_z.std(correction=0).item()}

    def unnormalised(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "B t V"]:
        """c(v, h) of every word after each token."""
        return self._compared(self._hidden(tokens))

    def _compared(self, h: Float[Tensor, "*N E"]) -> Float[Tensor, "*N V"]:
        return h @ self.embedding.weight.T + self._offsets()

    def _hidden(self, tokens: Tensor) -> Float[Tensor, "B t E"]:
        return self.cell.scan(self.embedding(tokens), self._start(len(tokens)))

    def _start(self, batch: int) -> Float[Tensor, "B S"]:
        return self.bias.new_ones(batch, self.cell.parts * self.config.width)

    def _offsets(self) -> Float[Tensor, "V"]:
        return self.bias if self.log_z is None else self.bias - self.log_z


preset(
    "negative_sampling", model="nce",
    fields={"contrast": "negative_sampling", "noise_exponent": 0.0},
    family="objective", score="exact", document="S3",
    source="Mikolov et al. 2013 (arXiv:1310.4546)",
    summary="Recurrent model trained by negative sampling from uniform noise, scored exactly.",
)  # fmt: skip
