r"""Mixture of K log-bilinear n-grams with context-free weights.

    (y_1 .. y_K)  = Lin(W·E → K·E)( c_1 .. c_W )
    P(s_t | s_<t) = Σ_k π_k softmax( Emb y_k )[s_t]

c_j = e(s_{t-j}) and y_k are (E), π is (K), Emb is (V, E). Lin is one affine map. π is uniform, as
in the S0 code, or learned (weights=learned). S0 reports that five components are no better than
one.

Source: S0 (DLM4).
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.sequence import previous_vectors
from lmzoo.models.ngram.vector_mixture import VectorMixture
from lmzoo.search_space import IntRange


@model("log_bilinear_mixture", aliases=("DLM4",), family="ngram", document="S0", source="S0")
class LogBilinearMixture(VectorMixture):
    """Mixture of K log-bilinear n-grams, one tied softmax each."""

    latent = "component"

    @config
    class Config(EmbeddingConfig):
        """Embedding, window, number of components and their weights."""

        window: Annotated[int, IntRange(1, 8)] = Field(5, ge=1)
        """Number W of context tokens."""
        components: Annotated[int, IntRange(1, 16, log=True)] = Field(3, ge=1)
        """Number K of components. Each computes a softmax over the vocabulary per token."""
        weights: Weighting = Weighting.UNIFORM

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.transition = nn.Linear(config.window * width, count * width)
        self.weights = LogWeights(count, config.weights)

    def predict_vectors(self, tokens: Tensor) -> Tensor:
        context = previous_vectors(self.embedding(tokens), self.config.window)
        y = self.transition(context.flatten(2))
        return y.unflatten(2, (self.config.components, -1)).movedim(2, 0)
