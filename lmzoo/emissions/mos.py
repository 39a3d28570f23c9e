r"""Mixture of softmaxes: K softmaxes tied to the embeddings, each of its own context.

    y_k = tanh(W_k y + b_k)
    P(v | y) = Σ_k softmax_k( A y ) softmax_v( Emb y_k )

The log-probabilities of all contexts have a rank above E, to which one softmax is limited.

Yang et al. 2018 (arXiv:1711.03953), whose prior has no bias.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.registry import technique
from lmzoo.base.search_space import IntRange
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.functional.tied_softmax import tied_log_prob

technique(
    "mos_emission", family="emission", source="Yang et al. 2018 (arXiv:1711.03953)",
    summary="A mixture of softmaxes, each of its own context (model.emission=mos).",
)  # fmt: skip


@EMISSIONS("mos")
class MixtureOfSoftmaxes(Emission):
    """A mixture of tied softmaxes of K contexts."""

    latent = "softmax"

    @config
    class Config:
        """Number of softmaxes."""

        components: Annotated[int, IntRange(2, 16, log=True)] = Field(8, ge=1)

    def __init__(self, config: Config, width: int, norm: Norm) -> None:
        super().__init__(config, width, norm)
        self.prior = nn.Linear(width, config.components, bias=False)
        self.context = nn.Linear(width, config.components * width)

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        return torch.logsumexp(self.joint(y, targets, table), dim=-1)

    def joint(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        contexts = self._contexts(y).movedim(-2, 0)
        scores = tied_log_prob(contexts, table, targets.expand(contexts.shape[:-1]))
        return torch.log_softmax(self.prior(y), dim=-1) + scores.movedim(0, -1)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        scores = torch.log_softmax(self._contexts(y) @ table.T, dim=-1)
        prior = torch.log_softmax(self.prior(y), dim=-1)
        return torch.logsumexp(prior[..., None] + scores, dim=-2).clamp_max(0)

    def _contexts(self, y: Tensor) -> Tensor:
        """Return y_k, (.., K, E)."""
        return self.context(y).tanh().unflatten(-1, (self.config.components, -1))
