r"""The log-bilinear n-gram: a linear map predicts the next token's vector.

    y_t = Σ_{j=1..W} W_j c_j + b        c_j = e(s_{t-j}), the vector 1 before `<start>`
    P(s_t | s_<t) = softmax( Emb y_t )

W = 1 is the log-bilinear bigram. The published code skipped s_{t-1}; this follows the text.

Mnih & Hinton 2007; S0 DLM1; zoo.md 2.
"""

from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task, model
from lmzoo.emissions.vector import VectorEmission
from lmzoo.functional.context import previous
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange


@model(
    "ngram_log_bilinear", ids=("DLM1",), family="ngram", seed="S0", source="Mnih & Hinton 2007; S0"
)
class NgramLogBilinear(LanguageModel):
    """One linear map of the last W token vectors, tied softmax."""

    @config
    class Config:
        """How wide the vectors are and how many tokens are seen."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        window: Annotated[int, IntRange(1, 8)] = Field(5, ge=1)
        """W tokens of context: a (W+1)-gram."""
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.transition = nn.Linear(config.window * config.width, config.width)
        self.emission = VectorEmission(VectorEmission.Config(), config.width, Norm.NONE)

    @property
    def state_size(self) -> int | None:
        return self.config.window * self.config.width

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        y = self._predicted(tokens[:, :-1])
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.emission.dense(self._predicted(prefix)[:, -1], self.embedding.weight)

    def _predicted(self, tokens: Tensor) -> Float[Tensor, "B t E"]:
        context = previous(self.embedding(tokens), self.config.window)
        return self.transition(context.flatten(2))
