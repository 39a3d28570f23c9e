r"""A mixture of K log-bilinear n-grams.

    (y_1 .. y_K)  = Lin(W·E → K·E)( c_1 .. c_W )
    P(s_t | s_<t) = Σ_k π_k softmax( Emb y_k )[s_t]

π is uniform, as published, or learned. S0 found five components no better than one; the
default is three, as S0's driver has it for the mixtures of bigrams and of unigrams, because
each is a softmax over the vocabulary at every token.

S0 DLM4; zoo.md 2.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.context import previous
from lmzoo.models.ngram.vector_mixture import VectorMixture
from lmzoo.search_space import IntRange


@model("log_bilinear_mixture", ids=("DLM4",), family="ngram", seed="S0", source="S0")
class LogBilinearMixture(VectorMixture):
    """K linear maps of the window, one tied softmax each."""

    latent = "component"

    @config
    class Config:
        """How wide the vectors are, how many tokens are seen, how many maps there are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        window: Annotated[int, IntRange(1, 8)] = Field(5, ge=1)
        components: Annotated[int, IntRange(1, 16, log=True)] = Field(3, ge=1)
        """Each costs a softmax over the vocabulary at every token."""
        weights: Weighting = Weighting.UNIFORM
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.embedding = Table(task.vocab, width, config.embedding_std)
        self.transition = nn.Linear(config.window * width, count * width)
        self.weights = LogWeights(count, config.weights)

    @property
    def state_size(self) -> int | None:
        return self.config.window * self.config.width

    def vectors(self, tokens: Tensor) -> Tensor:
        context = previous(self.embedding(tokens), self.config.window)
        y = self.transition(context.flatten(2))
        return y.unflatten(2, (self.config.components, -1)).movedim(2, 0)
