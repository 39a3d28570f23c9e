r"""The latent autoregressive model: a summary of the past, and the last token itself.

    x_t = e(s_{t-1})
    h_t = cell(x_t, h_{t-1})                        h_0 = 1
    P(s_t | s_<t) = emission(h_t + S x_t)

Two sub-models, one that remembers and one that predicts. With S = 0 it is the recurrent
language model.

S4; zoo.md 4.4.
"""

from typing import Annotated, Any

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS
from lmzoo.config import config
from lmzoo.contract import Carried, LanguageModel, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange


@model("latent_ar", family="recurrent", document="S4", source="S4")
class LatentAutoregressive(LanguageModel):
    """A recurrence whose prediction also sees the last token directly."""

    @config
    class Config:
        """How wide the state is, what remembers, what predicts."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        cell: Annotated[Any, CELLS] = "rnn"
        emission: Annotated[Any, EMISSIONS] = "vector"
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.cell = CELLS.build(config.cell, config.width, task.length)
        self.skip = nn.Linear(config.width, config.width, bias=False)
        self.emission = EMISSIONS.build(config.emission, config.width, Norm.NONE)

    @property
    def state_size(self) -> int | None:
        memory = self.cell.state_size
        return None if memory is None else memory + self.config.width

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        y = self._outputs(tokens[:, :-1])
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        return self.emission.dense(self._outputs(prefix)[:, -1], self.embedding.weight)

    def begin(self, batch: int, *given: Tensor) -> Carried:
        start = self.embedding.weight.new_ones(batch, 1, self.cell.parts * self.config.width)
        return stack.begin([self.cell], start)

    def advance(self, carried: Carried, token: Tensor) -> tuple[Tensor, Carried]:
        x = self.embedding(token)
        h, carried = stack.advance([self.cell], x, carried)
        return self.emission.dense(h[:, 0] + self.skip(x), self.embedding.weight), carried

    def _outputs(self, tokens: Tensor) -> Float[Tensor, "B t E"]:
        x = self.embedding(tokens)
        start = x.new_ones(len(x), self.cell.parts * self.config.width)
        return self.cell.scan(x, start) + self.skip(x)
