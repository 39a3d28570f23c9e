r"""Interpolated bigram: a mixture of a unigram and a log-bilinear bigram.

    P(s_t | s_<t) = λ_0 Q(s_t) + λ_1 softmax( Emb (M c_1 + b) )[s_t]
    Q = softmax( Emb (M·1 + b) )        unigram=tied_to_pad: the bigram map of the vector 1
    Q = softmax( q )                    unigram=free: one logit per token

c_1 = e(s_{t-1}) and b are (E), M is (E, E), Emb is (V, E), q is (V). The weights λ (2) are learned,
as in the S0 code, or ½ each (weights=uniform), as in the text of S0.

Source: Jelinek & Mercer 1980; S0 (DLM7).
"""

from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.blocks.unique import embed_unique
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.log_normaliser import log_normalisers


class Unigram(StrEnum):
    """How the unigram is parameterised."""

    TIED_TO_PAD = "tied_to_pad"
    FREE = "free"


@model(
    "interpolated_bigram", aliases=("DLM7",), family="ngram", document="S0",
    source="Jelinek & Mercer 1980; S0",
)  # fmt: skip
class InterpolatedBigram(LatentModel):
    """Mixture of a unigram and a log-bilinear bigram."""

    latent = "unigram or bigram"
    context_length = 1

    @config
    class Config(EmbeddingConfig):
        """Embedding, mixing weights and kind of unigram."""

        weights: Weighting = Weighting.LEARNED
        unigram: Unigram = Unigram.TIED_TO_PAD

    free: nn.Parameter | None

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, is_free = config.width, config.unigram is Unigram.FREE
        self.transition = nn.Linear(width, width)
        self.weights = LogWeights(2, config.weights)
        self.register_parameter("free", nn.Parameter(torch.empty(task.vocab)) if is_free else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the logits of a free unigram to 0 (the uniform distribution)."""
        if self.free is not None:
            nn.init.zeros_(self.free)

    def joint(self, tokens: Tensor) -> Tensor:
        targets, table = tokens[:, 1:], self.embedding.weight
        x, at = embed_unique(table, tokens[:, :-1])
        y = self.transition(x)
        log_z = log_normalisers(y, table)[:, None]
        bigram = (at(y) * table[targets]).sum(-1) - at(log_z).squeeze(-1)
        return self._mix(self._unigram()[targets], bigram)

    def next_joint(self, prefix: Tensor) -> Tensor:
        bigram = self._dense(self.embedding(prefix[:, -1]))
        return self._mix(self._unigram().expand_as(bigram), bigram)

    def prior(self) -> Tensor:
        return self.weights()

    def _mix(self, unigram: Tensor, bigram: Tensor) -> Float[Tensor, "B 2 N"]:
        """Add the log mixing weights to the log-probabilities of both components."""
        return torch.stack([unigram, bigram], dim=1) + self.weights()[:, None]

    def _unigram(self) -> Float[Tensor, "V"]:
        """Return log Q."""
        if self.free is not None:
            return torch.log_softmax(self.free, dim=0)
        return self._dense(self.embedding.weight.new_ones(1, self.config.width))[0]

    def _dense(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N V"]:
        """Return the bigram's log-probabilities of all tokens after the vectors x."""
        return torch.log_softmax(self.transition(x) @ self.embedding.weight.T, dim=-1)
