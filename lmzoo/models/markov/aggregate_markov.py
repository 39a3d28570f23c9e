r"""Aggregate Markov model: a bigram factored through K soft classes.

    P(z | s)      = softmax_z( A e(s) + a )
    P(v | z)      = softmax_v( Emb k_z )
    P(s_t | s_<t) = Σ_z P(s_t | z) P(z | s_{t-1})

e(s) and k_z are (E), A is (K, E), Emb is (V, E). The bigram matrix is the product of a V x K and a
K x V stochastic matrix, so its rank is at most K. K = 1 is a unigram.

Source: Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0 (DLM10, "Remix").
"""

import torch
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.blocks.config import ComponentConfig
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.unique import embed_unique
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.normalise import Norm


@model(
    "aggregate_markov", aliases=("DLM10",), family="latent-markov", document="S0",
    source="Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0",
)  # fmt: skip
class AggregateMarkov(ComponentModel):
    """Aggregate Markov model: a bigram factored through K soft classes."""

    context_length = 1

    @config
    class Config(ComponentConfig):
        """Embedding and number of classes."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.gate = nn.Linear(config.width, config.components)
        self.words = Components(config.components, config.width, Norm.NONE, scaled=False)

    def log_weights(self, tokens: Tensor) -> Tensor:
        x, at = embed_unique(self.table, tokens)
        return at(torch.log_softmax(self.gate(x), dim=-1))
