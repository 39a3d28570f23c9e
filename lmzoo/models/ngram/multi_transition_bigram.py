r"""A unigram interpolated with K bigrams.

    P(s_t | s_<t) = λ_0 Q(s_t) + Σ_{k=1..K} λ_k softmax( Emb (M_k c_1 + b_k) )[s_t]
    Q = softmax( Emb (M_1·1 + b_1) )

K = 1 is the interpolated bigram.

S0 DLM8; zoo.md 2.
"""

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


@model("multi_transition_bigram", ids=("DLM8",), family="ngram", seed="S0", source="S0")
class MultiTransitionBigram(LatentModel):
    """K linear maps of the previous token, and the first one's unigram."""

    latent = "unigram or transition"

    @config
    class Config:
        """How wide the vectors are, how many maps there are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        components: Annotated[int, IntRange(1, 16, log=True)] = Field(4, ge=1)
        """Each costs a softmax over the vocabulary for every word."""
        weights: Weighting = Weighting.LEARNED
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.embedding = Table(task.vocab, width, config.embedding_std)
        self.transition = nn.Linear(width, count * width)
        self.weights = LogWeights(count + 1, config.weights)

    @property
    def state_size(self) -> int | None:
        return self.config.width

    def joint(self, tokens: Tensor) -> Tensor:
        targets, table = tokens[:, 1:], self.embedding.weight
        x, at = per_word(table, tokens[:, :-1])
        y = self._mapped(x)
        log_z = log_normalisers(y, table)
        y = at(y.flatten(1)).unflatten(2, y.shape[1:])
        bigrams = (y * table[targets][:, :, None]).sum(-1) - at(log_z)
        words = torch.cat([self._unigram()[targets][..., None], bigrams], dim=-1)
        return (self.weights() + words).transpose(1, 2)

    def next_joint(self, prefix: Tensor) -> Tensor:
        bigrams = self._dense(self.embedding(prefix[:, -1]))
        unigram = self._unigram().expand(len(bigrams), 1, -1)
        return self.weights()[:, None] + torch.cat([unigram, bigrams], dim=1)

    def prior(self) -> Tensor:
        return self.weights()

    def _unigram(self) -> Float[Tensor, "V"]:
        """Log Q."""
        return self._dense(self.embedding.weight.new_ones(1, self.config.width))[0, 0]

    def _dense(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K V"]:
        return torch.log_softmax(self._mapped(x) @ self.embedding.weight.T, dim=-1)

    def _mapped(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K E"]:
        """M_k x + b_k."""
        return self.transition(x).unflatten(1, (self.config.components, -1))
