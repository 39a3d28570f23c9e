r"""What mixtures of log-bilinear predictions share.

    P(s_t | s_<t) = Σ_k P(k) softmax( Emb y_k,t )[s_t]

A subclass says how its K predicted vectors come from the context.
"""

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.log_weights import LogWeights
from lmzoo.emissions.vector import VectorEmission


class VectorMixture(LatentModel):
    """K tied softmaxes, mixed by weights that do not depend on the context."""

    embedding: Table
    emission: VectorEmission
    weights: LogWeights

    @abstractmethod
    def vectors(self, tokens: Int[Tensor, "B t"]) -> Float[Tensor, "K B t E"]:
        """The K vectors predicted after each position."""

    def joint(self, tokens: Tensor) -> Tensor:
        y = self.vectors(tokens[:, :-1])
        scores = self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)
        return self.weights()[:, None] + scores.transpose(0, 1)

    def next_joint(self, prefix: Tensor) -> Tensor:
        dense = self.emission.dense(self.vectors(prefix)[:, :, -1], self.embedding.weight)
        return self.weights()[:, None] + dense.transpose(0, 1)

    def prior(self) -> Tensor:
        return self.weights()
