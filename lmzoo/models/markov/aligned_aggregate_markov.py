r"""The aggregate Markov model whose parent may be any earlier token.

    P(s_t | s_<t) = Σ_{a<t} P(a | t) Σ_z P(s_t | z) P(z | s_a)
    P(a | t)      = softmax_{a<t}( Λ[a, t] )
    P(z | s)      = softmax_z( A e(s) + a )
    P(v | z)      = softmax_v( Emb N(k_z) )

With all prior mass on a = t-1 it is the aggregate Markov model.

S0 DLM13, and DLM25 with N = rms; zoo.md 2.
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.parents import Alignment, ParentModel
from lmzoo.catalogue import preset
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange


@model(
    "aligned_aggregate_markov",
    aliases=("DLM13",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class AlignedAggregateMarkov(ParentModel):
    """K soft classes, mixed over all earlier tokens by a learned alignment."""

    @config
    class Config:
        """How wide the vectors are, how many classes there are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
        norm: Norm = Norm.NONE
        """Applied to the component vectors only."""
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.alignment = Alignment(task.length)
        self.gate = nn.Linear(config.width, config.components)
        self.words = Components(config.components, config.width, config.norm, scaled=False)

    def log_prior(self, count: int) -> Tensor:
        return self.alignment(count)

    def pair_scores(self, parents: Tensor, targets: Tensor) -> Tensor:
        words = self.words.word_scores(targets, self.embedding.weight)
        return log_mixture(self._classes(parents), words.transpose(1, 2))

    def child_scores(self, parents: Tensor) -> Tensor:
        return log_mixture(self._classes(parents), self.words.word_table(self.embedding.weight))

    def _classes(self, parents: Tensor) -> Float[Tensor, "B A K"]:
        """P(z | s_a)."""
        return torch.softmax(self.gate(self.embedding(parents)), dim=-1)


preset(
    "aligned_aggregate_markov_sphere", model="aligned_aggregate_markov", fields={"norm": "rms"},
    aliases=("DLM25",), family="latent-markov", score="exact", document="S0", source="S0 (code)",
    summary="The aligned aggregate Markov model, component vectors on the sphere.",
)  # fmt: skip
