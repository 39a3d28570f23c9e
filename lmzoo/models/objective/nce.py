r"""Noise-contrastive language model: training distinguishes tokens of the data from noise tokens.

    c(w, h)   = e(w) · h + b_w [− log Z]          h = cell over the prefix, h_0 = 1
    P(w | h)  = e^c(w, h) / Σ_v e^c(v, h)
    objective = log σ(s⁺) + Σ_{j=1..k} log σ(−s_j)        w_j ~ q

    contrast=nce                 s = c − log k q: the optimum has Σ_v e^c = 1
    contrast=negative_sampling   s = c: the optimum has P ∝ p̃ / q, which is the distribution p̃
                                 of the data only if the noise is uniform (noise_exponent=0)

e(w) and h are (E), b and q are (V); s⁺ is the score of the data token, s_j that of noise token w_j
(`lmzoo.functional.noise_contrastive`). The score of the model is normalised over all tokens, so it
is an exact log-likelihood for both objectives. The initial b is −log V, where Σ_v e^c is about 1;
with learned_log_z=True the initial b is 0 and the initial log Z is log V.

Source: Gutmann & Hyvärinen 2010; Mnih & Teh 2012 (arXiv:1206.6426); Mikolov et al. 2013
(arXiv:1310.4546, negative sampling); S3.
"""

import math
from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.noise_distribution import NoiseDistribution
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS
from lmzoo.config import config
from lmzoo.contract import DecodingState, LanguageModel, Task, model
from lmzoo.functional.initialisers import Draw
from lmzoo.functional.noise_contrastive import contrastive_objective
from lmzoo.functional.token_scores import mask_scores, scored_mask
from lmzoo.registry import preset
from lmzoo.search_space import Choice, IntRange
from lmzoo.types import Lengths, Tokens, TokenScores


class Contrast(StrEnum):
    """The training objective."""

    NCE = "nce"
    NEGATIVE_SAMPLING = "negative_sampling"


@model(
    "nce", family="objective", document="S3",
    source="Gutmann & Hyvärinen 2010; Mnih & Teh 2012 (arXiv:1206.6426)",
)  # fmt: skip
class NoiseContrastive(LanguageModel):
    """Recurrent language model trained by noise-contrastive estimation."""

    @config
    class Config(EmbeddingConfig):
        """Embedding, cell, objective and noise."""

        cell: Annotated[Any, CELLS] = "lstm"
        contrast: Contrast = Contrast.NCE
        negatives: Annotated[int, IntRange(1, 64, log=True)] = Field(16, ge=1)
        """Number k of noise tokens per token of the data."""
        noise_exponent: Annotated[float, Choice((0.0, 0.75, 1.0))] = Field(1.0, ge=0)
        """Exponent α of the noise distribution q(w) ∝ n_w^α."""
        learned_log_z: bool = False
        """Whether log Z is a learned parameter; otherwise it is 0."""

    log_z: nn.Parameter | None

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = EmbeddingTable(task.vocab, config.width, config.embedding_std)
        self.cell = CELLS.build(config.cell, config.width, task.length)
        self.bias = nn.Parameter(torch.empty(task.vocab))
        log_z = nn.Parameter(torch.empty(())) if config.learned_log_z else None
        self.register_parameter("log_z", log_z)
        self.noise = NoiseDistribution(task.vocab, config.noise_exponent)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set b and log Z such that Σ_v e^c is about 1."""
        log_vocab = math.log(self.task.vocab)
        nn.init.constant_(self.bias, 0.0 if self.config.learned_log_z else -log_vocab)
        if self.log_z is not None:
            nn.init.constant_(self.log_z, log_vocab)

    def redraw(self, name: str, draw: Draw) -> None:
        """Ignore named initialisers: b and log Z keep the values of `reset_parameters`."""

    @property
    def state_size(self) -> int | None:
        return self.cell.state_size

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        dense = torch.log_softmax(self.unnormalised_scores(tokens[:, :-1]), dim=-1)
        return dense.gather(-1, tokens[:, 1:, None])[..., 0]

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return torch.log_softmax(self.unnormalised_scores(prefix)[:, -1], dim=-1)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        return stack.begin([self.cell], self._start(batch)[:, None])

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        h, state = stack.advance([self.cell], self.embedding(token), state)
        return torch.log_softmax(self._vocabulary_scores(h[:, 0]), dim=-1), state

    def objective(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        if self.training:
            self.noise.update(tokens, scored_mask(tokens, lengths))
        data, h = tokens[:, 1:], self._hidden_states(tokens[:, :-1])
        noise = self.noise.draw((*data.shape, self.config.negatives))
        both = torch.cat([data[..., None], noise], dim=-1)
        s = (self.embedding(both) @ h[..., None])[..., 0] + self._biases()[both]
        if self.config.contrast is Contrast.NCE:
            s = s - math.log(self.config.negatives) - self.noise.log_q(s)[both]
        return mask_scores(contrastive_objective(s[..., 0], s[..., 1:]), lengths)

    def log_normalisers(self, tokens: Tokens, lengths: Lengths) -> TokenScores:
        """Return log Σ_v e^c(v, h) before each scored token; 0 for a normalised model."""
        log_z = self.unnormalised_scores(tokens[:, :-1]).logsumexp(-1)
        return mask_scores(log_z, lengths)

    def report(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> dict[str, float]:
        """Return the mean and standard deviation of log Σ_v e^c over the scored tokens."""
        log_z = self.log_normalisers(tokens, lengths)[scored_mask(tokens, lengths)]
        return {"log Z": log_z.mean().item(), "spread of log Z": log_z.std(correction=0).item()}

    def unnormalised_scores(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "B t V"]:
        """Return c(v, h) of every token v after each position."""
        return self._vocabulary_scores(self._hidden_states(tokens))

    def _vocabulary_scores(self, h: Float[Tensor, "*N E"]) -> Float[Tensor, "*N V"]:
        return h @ self.embedding.weight.T + self._biases()

    def _hidden_states(self, tokens: Tensor) -> Float[Tensor, "B t E"]:
        return self.cell.scan(self.embedding(tokens), self._start(len(tokens)))

    def _start(self, batch: int) -> Float[Tensor, "B S"]:
        return self.bias.new_ones(batch, self.cell.num_state_vectors * self.config.width)

    def _biases(self) -> Float[Tensor, "V"]:
        return self.bias if self.log_z is None else self.bias - self.log_z


preset(
    "negative_sampling", model="nce",
    fields={"contrast": "negative_sampling", "noise_exponent": 0.0},
    family="objective", score="exact", document="S3",
    source="Mikolov et al. 2013 (arXiv:1310.4546)",
    summary="Recurrent language model trained by negative sampling with uniform noise.",
)  # fmt: skip
