r"""Mixture of K unigrams, a control: components that see no context cannot help.

    P(s_t) = Σ_k π_k softmax( Emb v_k )[s_t]

v_k is (E), π is (K), Emb is (V, E). For every K the mixture is one categorical distribution, so it
fits the training data at most as well as the empirical unigram. The S0 code sets every v_k to the
vector 1, which makes all components equal; here they are free parameters.

Source: S0 (DLM9).
"""

from torch import Tensor

from lmzoo.blocks.config import ComponentConfig
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.normalise import Norm


@model("unigram_mixture", aliases=("DLM9",), family="ngram", document="S0", source="S0")
class UnigramMixture(ComponentModel):
    """Mixture of K unigrams, a control that ignores the context."""

    context_length = 0

    @config
    class Config(ComponentConfig):
        """Embedding, number of components and mixing weights."""

        weights: Weighting = Weighting.LEARNED

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.weights = LogWeights(config.components, config.weights)
        self.words = Components(config.components, config.width, Norm.NONE, scaled=False)

    def log_weights(self, tokens: Tensor) -> Tensor:
        return self.weights().expand(*tokens.shape, -1)

    def prior(self) -> Tensor:
        return self.weights()
