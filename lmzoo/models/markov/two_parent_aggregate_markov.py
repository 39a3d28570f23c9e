r"""Two-parent aggregate Markov model: the class logits of two earlier tokens add.

    P(s_t | s_<t) = Σ_{i,j<t} P(i, j | t) Σ_z P(s_t | z) P(z | i, j)
    P(z | i, j)   = softmax_z( A e(s_i) + a + A' e(s_j) + a' )
    P(i, j | t)   = softmax_{i,j<t}( Λ[i, j, t] )
    P(v | z)      = softmax_v( Emb k_z )

i and j are the positions of the parents, Λ is (T, T, T), e(s) and k_z are (E), A and A' are (K, E),
Emb is (V, E). The latent that `posterior` reports is the second parent j.

The sum over i does not depend on the target and is done first, G[j, t, z] = Σ_i P(i, j | t)
P(z | i, j), so that no array of size B·T³·K or B·T³ is stored. The time still grows with B·T³·K.

Source: S0 (DLM14).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.blocks.config import ComponentConfig
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.parents import check_length, earlier_mask
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.initialisers import draw_uniform
from lmzoo.functional.logspace import log_floored, log_mixture
from lmzoo.functional.normalise import Norm


@model(
    "two_parent_aggregate_markov", aliases=("DLM14",), family="latent-markov", document="S0",
    source="S0",
)  # fmt: skip
class TwoParentAggregateMarkov(LatentModel):
    """Aggregate Markov model whose K soft classes are chosen by two earlier tokens."""

    latent = "second parent"

    @config
    class Config(ComponentConfig):
        """Embedding and number of classes."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.first = nn.Linear(width, count)
        self.second = nn.Linear(width, count)
        self.words = Components(count, width, Norm.NONE, scaled=False)
        self.pairs = nn.Parameter(torch.empty((task.length,) * 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw Λ from U(T)."""
        draw_uniform(self.pairs, len(self.pairs))

    @property
    def unused(self) -> int:
        """Logits that no score depends on: a parent not before t, t = 0, the pair of t = 1."""
        count = len(self.pairs)
        return count**3 - ((count - 1) * count * (2 * count - 1) // 6 - 1)

    def joint(self, tokens: Tensor) -> Tensor:
        classes = self._classes(tokens[:, :-1], self._log_prior(tokens.shape[1] - 1))
        scores = self.words.token_log_probs(tokens[:, 1:], self.embedding.weight)
        top = scores.detach().amax(dim=-1, keepdim=True)
        scaled = (classes * (scores - top).exp()[:, None]).sum(-1)  # B j t
        joint = log_floored(scaled) + top.squeeze(-1)[:, None]
        return joint.masked_fill(~earlier_mask(scaled.shape[-1], scaled.device), -torch.inf)

    def next_joint(self, prefix: Tensor) -> Tensor:
        prior = self._log_prior(prefix.shape[1])[..., -1:]
        classes = self._classes(prefix, prior).squeeze(2)
        return log_mixture(classes, self.words.log_prob_table(self.embedding.weight))

    def prior(self) -> Tensor:
        return torch.logsumexp(self._log_prior(self.task.length - 1), dim=0)

    def _log_prior(self, count: int) -> Float[Tensor, "i j t"]:
        """Return log P(i, j | t), which is −∞ unless both parents are before t."""
        check_length(len(self.pairs), count)
        before = earlier_mask(count, self.pairs.device)
        logits = self.pairs[:count, :count, 1 : count + 1]
        logits = logits.masked_fill(~(before[:, None] & before), -torch.inf)
        return torch.log_softmax(logits.flatten(0, 1), dim=0).unflatten(0, (count, count))

    def _classes(
        self, parents: Tensor, log_prior: Float[Tensor, "i j t"]
    ) -> Float[Tensor, "B j t K"]:
        """Return P(j, z | t), the sum of P(i, j, z | t) over the first parent i."""
        x = self.embedding(parents)
        logits = self.first(x)[:, :, None] + self.second(x)[:, None]  # B i j K
        classes = torch.softmax(logits, dim=-1)
        return torch.einsum("ijt,bijk->bjtk", log_prior.exp(), classes)
