r"""A log-bilinear n-gram that does not know the order of its window: a mixture over orders.

    P(s_t | s_<t) = Σ_{π ∈ S_W} P(π) softmax( Emb y_π )[s_t]
    y_π           = Σ_{j=1..W} W_j c_{π(j)} + b

There are W! softmaxes per token, 120 for the published W = 5; the default here is 3. Its
six cost 50 to 65 times a training step of the aggregate Markov model (DLM10), measured at
14,450 words and batches of 100 captions. The published code had uniform P(π).

S0 DLM3; zoo.md 2.
"""

from itertools import permutations
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.context import previous
from lmzoo.models.ngram.vector_mixture import VectorMixture
from lmzoo.search_space import IntRange


@model("permutation_log_bilinear", ids=("DLM3",), family="ngram", seed="S0", source="S0")
class PermutationLogBilinear(VectorMixture):
    """A log-bilinear n-gram mixed over all W! orders of its window."""

    latent = "permutation of the window"

    @config
    class Config:
        """How wide the vectors are, how many tokens are permuted, and P(π)."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        window: Annotated[int, IntRange(1, 4)] = Field(3, ge=1, le=6)
        weights: Weighting = Weighting.LEARNED
        embedding_std: float | None = Field(None, gt=0)

    orders: Tensor

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, window = config.width, config.window
        orders = torch.tensor(list(permutations(range(window))))
        self.register_buffer("orders", orders, persistent=False)
        self.embedding = Table(task.vocab, width, config.embedding_std)
        self.transition = nn.Linear(window * width, width)
        self.weights = LogWeights(len(orders), config.weights)

    @property
    def state_size(self) -> int | None:
        return self.config.window * self.config.width

    def vectors(self, tokens: Tensor) -> Tensor:
        context = previous(self.embedding(tokens), self.config.window)
        maps = self.transition.weight.unflatten(1, (self.config.window, -1))  # E W E
        # Each map meets each position once; a permutation then only chooses terms.
        terms = torch.einsum("ejd,btid->jibte", maps, context)
        chosen = (terms[j, order] for j, order in enumerate(self.orders.unbind(1)))
        return sum(chosen, self.transition.bias)
