r"""A mixture of unigrams: components without context cannot help.

    P(s_t) = Σ_k π_k softmax( Emb v_k )[s_t]

A control: whatever K is, this is one categorical, so it can never score better than the
empirical unigram. The published code had all v_k = 1, that is K = 1.

S0 DLM9; zoo.md 2.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange


@model("unigram_mixture", ids=("DLM9",), family="ngram", seed="S0", source="S0")
class UnigramMixture(ComponentModel):
    """K fixed distributions over words with fixed weights (a control)."""

    @config
    class Config:
        """How wide the vectors are, how many components there are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
        weights: Weighting = Weighting.LEARNED
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.weights = LogWeights(config.components, config.weights)
        self.words = Components(config.components, config.width, Norm.NONE, scaled=False)

    @property
    def state_size(self) -> int | None:
        return 0

    def log_weights(self, tokens: Tensor) -> Tensor:
        return self.weights().expand(*tokens.shape, -1)

    def prior(self) -> Tensor:
        return self.weights()
