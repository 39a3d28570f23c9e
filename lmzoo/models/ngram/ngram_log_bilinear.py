r"""Log-bilinear n-gram: a linear map of the last W token vectors predicts the next one.

    y_t = Σ_{j=1..W} W_j c_j + b        c_j = e(s_{t-j}), the vector 1 before `<start>`
    P(s_t | s_<t) = softmax( Emb y_t )

c_j, y_t and b are (E), W_j is (E, E), Emb is the embedding table (V, E). W = 1 is the log-bilinear
bigram. The S0 code leaves out s_{t-1}; this model follows the text of S0 and reads it.

Source: Mnih & Hinton 2007; S0 (DLM1).
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.vector import VectorEmission
from lmzoo.functional.normalise import Norm
from lmzoo.functional.sequence import previous_vectors
from lmzoo.search_space import IntRange


@model(
    "ngram_log_bilinear", aliases=("DLM1",), family="ngram", document="S0",
    source="Mnih & Hinton 2007; S0",
)  # fmt: skip
class NgramLogBilinear(FeatureModel):
    """Log-bilinear n-gram: one linear map of the last W token vectors, tied softmax."""

    @config
    class Config(EmbeddingConfig):
        """Embedding and window."""

        window: Annotated[int, IntRange(1, 8)] = Field(5, ge=1)
        """Number W of context tokens; the model is a (W+1)-gram."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = EmbeddingTable(task.vocab, config.width, config.embedding_std)
        self.transition = nn.Linear(config.window * config.width, config.width)
        self.emission = VectorEmission(VectorEmission.Config(), config.width, Norm.NONE)
        self.context_length = config.window

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        context = previous_vectors(self.embedding(tokens), self.config.window)
        return self.transition(context.flatten(2))
