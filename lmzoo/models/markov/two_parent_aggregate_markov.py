r"""The aggregate Markov model with two parents, whose logits add.

    P(s_t | s_<t) = Σ_{i,j<t} P(i, j | t) Σ_z P(s_t | z) P(z | i, j)
    P(z | i, j)   = softmax_z( A e(s_i) + a + A' e(s_j) + a' )
    P(i, j | t)   = softmax_{i,j<t}( Λ[i, j, t] )
    P(v | z)      = softmax_v( Emb k_z )

The latent reported is the second parent, j. The sum over i is done before the target
is looked at, G[j, t, z] = Σ_i P(i, j | t) P(z | i, j): no array of B·T³·K exists, and
none of B·T³. A training step takes 2 to 3 times the aggregate Markov model's (DLM10),
measured at T = 20, 14,450 words and batches of 100; its time grows with B·T³·K.

S0 DLM14; zoo.md 2.
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.parents import earlier, within
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.draw import uniform
from lmzoo.functional.logspace import log_floored, log_mixture
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange


@model(
    "two_parent_aggregate_markov",
    aliases=("DLM14",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class TwoParentAggregateMarkov(LatentModel):
    """K soft classes chosen by two earlier tokens together."""

    latent = "second parent"

    @config
    class Config:
        """How wide the vectors are, how many classes there are."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.embedding = Table(task.vocab, width, config.embedding_std)
        self.first = nn.Linear(width, count)
        self.second = nn.Linear(width, count)
        self.words = Components(count, width, Norm.NONE, scaled=False)
        self.pairs = nn.Parameter(torch.empty((task.length,) * 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Λ from U(T)."""
        with torch.no_grad():
            self.pairs.copy_(uniform(tuple(self.pairs.shape), len(self.pairs)))

    def joint(self, tokens: Tensor) -> Tensor:
        classes = self._classes(tokens[:, :-1], self._log_prior(tokens.shape[1] - 1))
        words = self.words.word_scores(tokens[:, 1:], self.embedding.weight)
        top = words.detach().amax(dim=-1, keepdim=True)
        found = (classes * (words - top).exp()[:, None]).sum(-1)  # B j t
        joint = log_floored(found) + top.squeeze(-1)[:, None]
        return joint.masked_fill(~earlier(found.shape[-1], found.device), -torch.inf)

    def next_joint(self, prefix: Tensor) -> Tensor:
        prior = self._log_prior(prefix.shape[1])[..., -1:]
        classes = self._classes(prefix, prior).squeeze(2)
        return log_mixture(classes, self.words.word_table(self.embedding.weight))

    def prior(self) -> Tensor:
        return torch.logsumexp(self._log_prior(self.task.length - 1), dim=0)

    def _log_prior(self, count: int) -> Float[Tensor, "i j t"]:
        """Log P(i, j | t); minus infinity unless both are before t."""
        within(len(self.pairs), count)
        before = earlier(count, self.pairs.device)
        logits = self.pairs[:count, :count, 1 : count + 1]
        logits = logits.masked_fill(~(before[:, None] & before), -torch.inf)
        return torch.log_softmax(logits.flatten(0, 1), dim=0).unflatten(0, (count, count))

    def _classes(
        self, parents: Tensor, log_prior: Float[Tensor, "i j t"]
    ) -> Float[Tensor, "B j t K"]:
        """P(j, z | t), the first parent summed out."""
        x = self.embedding(parents)
        logits = self.first(x)[:, :, None] + self.second(x)[:, None]  # B i j K
        classes = torch.softmax(logits, dim=-1)
        return torch.einsum("ijt,bijk->bjtk", log_prior.exp(), classes)
