r"""What mixtures of log-bilinear predictions share.

    P(s_t | s_<t) = Σ_k P(k) softmax( Emb y_k,t )[s_t]

A subclass says how its K predicted vectors come from the window of the last W tokens.
Each costs a softmax over the vocabulary, done once for each distinct window of a batch.
"""

from abc import abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.log_weights import LogWeights
from lmzoo.blocks.per_word import distinct
from lmzoo.functional.context import previous
from lmzoo.functional.log_normaliser import log_normalisers


class VectorMixture(LatentModel):
    """K tied softmaxes, mixed by weights that do not depend on the context."""

    embedding: Table
    weights: LogWeights

    @abstractmethod
    def vectors(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "K B t E"]:
        """The K vectors predicted after each position."""

    def joint(self, tokens: Tensor) -> Tensor:
        table, y = self.embedding.weight, self.vectors(tokens[:, :-1])
        windows = previous(tokens[:, :-1, None], self.config.window, pad=-1.0)
        first, place = distinct(windows.flatten(0, 1).squeeze(2))
        log_z = log_normalisers(y.flatten(1, 2)[:, first], table)[:, place]
        scores = (y * table[tokens[:, 1:]]).sum(-1) - log_z.unflatten(1, y.shape[1:3])
        return self.weights()[:, None] + scores.transpose(0, 1)

    def next_joint(self, prefix: Tensor) -> Tensor:
        y = self.vectors(prefix)[:, :, -1].transpose(0, 1)
        return self.weights()[:, None] + torch.log_softmax(y @ self.embedding.weight.T, dim=-1)

    def prior(self) -> Tensor:
        return self.weights()
