r"""The aggregate Markov model: a bigram through K soft classes.

    P(z | s)      = softmax_z( A e(s) + a )
    P(v | z)      = softmax_v( Emb k_z )
    P(s_t | s_<t) = Σ_z P(s_t | z) P(z | s_{t-1})

The bigram matrix is a product of a V x K and a K x V stochastic matrix, so of rank at
most K; K = 1 is a unigram.

Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0 DLM10, "Remix"; zoo.md 2.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.per_word import per_word
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange


@model(
    "aggregate_markov", aliases=("DLM10",), family="latent-markov", document="S0",
    source="Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0",
)  # fmt: skip
class AggregateMarkov(ComponentModel):
    """A bigram factored through K soft classes."""

    @config
    class Config:
        """How wide the vectors are, how many classes there are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.gate = nn.Linear(config.width, config.components)
        self.words = Components(config.components, config.width, Norm.NONE, scaled=False)

    @property
    def state_size(self) -> int | None:
        return self.config.width

    def log_weights(self, tokens: Tensor) -> Tensor:
        x, at = per_word(self.table, tokens)
        return at(torch.log_softmax(self.gate(x), dim=-1))
