r"""Base class of mixtures of log-bilinear n-grams.

    P(s_t | s_<t) = Σ_k P(k) softmax( Emb y_k,t )[s_t]

A subclass predicts the K vectors y_k,t (E) from the window of the last W tokens. The softmax
normalisers are computed once per distinct window of a batch.
"""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.log_weights import LogWeights
from lmzoo.blocks.unique import unique_rows
from lmzoo.contract import Task
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.functional.sequence import previous_vectors


class VectorMixture(LatentModel):
    """K tied softmaxes, mixed with weights that do not depend on the context."""

    weights: LogWeights

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.context_length = config.window

    @abstractmethod
    def predict_vectors(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "K B t E"]:
        """Return the K vectors y of the token after each position."""

    def joint(self, tokens: Tensor) -> Tensor:
        table, y = self.embedding.weight, self.predict_vectors(tokens[:, :-1])
        windows = previous_vectors(tokens[:, :-1, None], self.config.window, pad=-1.0)
        first, index = unique_rows(windows.flatten(0, 1).squeeze(2))
        log_z = log_normalisers(y.flatten(1, 2)[:, first], table)[:, index]
        scores = (y * table[tokens[:, 1:]]).sum(-1) - log_z.unflatten(1, y.shape[1:3])
        return self.weights()[:, None] + scores.transpose(0, 1)

    def next_joint(self, prefix: Tensor) -> Tensor:
        y = self.predict_vectors(prefix)[:, :, -1].transpose(0, 1)
        return self.weights()[:, None] + torch.log_softmax(y @ self.embedding.weight.T, dim=-1)

    def prior(self) -> Tensor:
        return self.weights()
