r"""Each token descends from one earlier token, by a learned prior over positions.

    P(s_t | s_<t) = Σ_{a<t} P(a | t) softmax( Emb (M e(s_a) + b) )[s_t]
    P(a | t)      = softmax_{a<t}( Λ[a, t] )

Saul & Pereira 1997 (mixed-order Markov, cmp-lg/9706007); S0 DLM5; zoo.md 2.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.parents import Alignment, ParentModel, tied_pairs
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.search_space import IntRange


@model(
    "latent_parent_positional", aliases=("DLM5",), family="latent-markov", document="S0",
    source="Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0",
)  # fmt: skip
class LatentParentPositional(ParentModel):
    """A bigram mixed over all earlier tokens by a learned alignment."""

    @config
    class Config:
        """How wide the vectors are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.transition = nn.Linear(config.width, config.width)
        self.alignment = Alignment(task.length)

    def log_prior(self, count: int) -> Tensor:
        return self.alignment(count)

    def pair_scores(self, parents: Tensor, targets: Tensor) -> Tensor:
        return tied_pairs(self.transition, self.embedding.weight, parents, targets)

    def child_scores(self, parents: Tensor) -> Tensor:
        y = self.transition(self.embedding(parents))
        return torch.log_softmax(y @ self.embedding.weight.T, dim=-1)
