r"""Multi-transition bigram: a mixture of a unigram and K log-bilinear bigrams.

    P(s_t | s_<t) = λ_0 Q(s_t) + Σ_{k=1..K} λ_k softmax( Emb (M_k c_1 + b_k) )[s_t]
    Q = softmax( Emb (M_1·1 + b_1) )

c_1 = e(s_{t-1}) and b_k are (E), M_k is (E, E), Emb is (V, E), the weights λ are (K+1). K = 1 is
the interpolated bigram.

Source: S0 (DLM8).
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.blocks.unique import embed_unique
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.search_space import IntRange


@model("multi_transition_bigram", aliases=("DLM8",), family="ngram", document="S0", source="S0")
class MultiTransitionBigram(LatentModel):
    """Mixture of a unigram and K log-bilinear bigrams."""

    latent = "unigram or transition"
    context_length = 1

    @config
    class Config(EmbeddingConfig):
        """Embedding, number of bigrams and mixing weights."""

        components: Annotated[int, IntRange(1, 16, log=True)] = Field(4, ge=1)
        """Number K of bigrams. Each computes a softmax over the vocabulary per distinct token."""
        weights: Weighting = Weighting.LEARNED

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.transition = nn.Linear(width, count * width)
        self.weights = LogWeights(count + 1, config.weights)

    def joint(self, tokens: Tensor) -> Tensor:
        targets, table = tokens[:, 1:], self.embedding.weight
        x, at = embed_unique(table, tokens[:, :-1])
        y = self._transition_vectors(x)
        log_z = log_normalisers(y, table)
        y = at(y.flatten(1)).unflatten(2, y.shape[1:])
        bigrams = (y * table[targets][:, :, None]).sum(-1) - at(log_z)
        scores = torch.cat([self._unigram()[targets][..., None], bigrams], dim=-1)
        return (self.weights() + scores).transpose(1, 2)

    def next_joint(self, prefix: Tensor) -> Tensor:
        bigrams = self._dense(self.embedding(prefix[:, -1]))
        unigram = self._unigram().expand(len(bigrams), 1, -1)
        return self.weights()[:, None] + torch.cat([unigram, bigrams], dim=1)

    def prior(self) -> Tensor:
        return self.weights()

    def _unigram(self) -> Float[Tensor, "V"]:
        """Return log Q."""
        return self._dense(self.embedding.weight.new_ones(1, self.config.width))[0, 0]

    def _dense(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K V"]:
        """Return each bigram's log-probabilities of all tokens after the vectors x."""
        return torch.log_softmax(self._transition_vectors(x) @ self.embedding.weight.T, dim=-1)

    def _transition_vectors(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K E"]:
        """Return M_k x + b_k for every k."""
        return self.transition(x).unflatten(1, (self.config.components, -1))
