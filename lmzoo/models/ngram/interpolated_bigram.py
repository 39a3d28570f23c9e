r"""A unigram and a bigram, interpolated.

    P(s_t | s_<t) = λ_0 Q(s_t) + λ_1 softmax( Emb (M c_1 + b) )[s_t]
    Q = softmax( Emb (M·1 + b) )        the bigram's map of the vector 1: tied_to_pad
    Q = softmax( q )                    one free logit per word: free

λ is learned, as the published code has it, or ½ each, as the text says.

Jelinek & Mercer 1980; S0 DLM7; zoo.md 2.
"""

from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.blocks.per_word import per_word
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.search_space import IntRange


class Unigram(StrEnum):
    """Where the unigram comes from."""

    TIED_TO_PAD = "tied_to_pad"
    FREE = "free"


@model(
    "interpolated_bigram", ids=("DLM7",), family="ngram", seed="S0",
    source="Jelinek & Mercer 1980; S0",
)  # fmt: skip
class InterpolatedBigram(LatentModel):
    """A log-bilinear bigram that may fall back on a unigram."""

    latent = "unigram or bigram"

    @config
    class Config:
        """How wide the vectors are, how the two are mixed, what the unigram is."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        weights: Weighting = Weighting.LEARNED
        unigram: Unigram = Unigram.TIED_TO_PAD
        embedding_std: float | None = Field(None, gt=0)

    free: nn.Parameter | None

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, is_free = config.width, config.unigram is Unigram.FREE
        self.embedding = Table(task.vocab, width, config.embedding_std)
        self.transition = nn.Linear(width, width)
        self.weights = LogWeights(2, config.weights)
        self.register_parameter("free", nn.Parameter(torch.empty(task.vocab)) if is_free else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A free unigram starts uniform."""
        if self.free is not None:
            nn.init.zeros_(self.free)

    @property
    def state_size(self) -> int | None:
        return self.config.width

    def joint(self, tokens: Tensor) -> Tensor:
        targets, table = tokens[:, 1:], self.embedding.weight
        x, at = per_word(table, tokens[:, :-1])
        y = self.transition(x)
        log_z = log_normalisers(y, table)[:, None]
        bigram = (at(y) * table[targets]).sum(-1) - at(log_z).squeeze(-1)
        return self._mixed(self._unigram()[targets], bigram)

    def next_joint(self, prefix: Tensor) -> Tensor:
        bigram = self._dense(self.embedding(prefix[:, -1]))
        return self._mixed(self._unigram().expand_as(bigram), bigram)

    def prior(self) -> Tensor:
        return self.weights()

    def _mixed(self, unigram: Tensor, bigram: Tensor) -> Float[Tensor, "B 2 N"]:
        return torch.stack([unigram, bigram], dim=1) + self.weights()[:, None]

    def _unigram(self) -> Float[Tensor, "V"]:
        """Log Q."""
        if self.free is not None:
            return torch.log_softmax(self.free, dim=0)
        return self._dense(self.embedding.weight.new_ones(1, self.config.width))[0]

    def _dense(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N V"]:
        return torch.log_softmax(self.transition(x) @ self.embedding.weight.T, dim=-1)
