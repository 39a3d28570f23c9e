r"""Mixture emission: K fixed distributions over words, gated by the context.

    P(z | y) = softmax_z( A y + a )
    P(v | z) = softmax_v( exp(g_z) · Emb N(k_z) )
    P(v | y) = Σ_z P(z | y) P(v | z)

The K log-normalisers do not depend on the context, so training computes each once per
batch and gathers the targets' embeddings: nothing of shape (B, T, V) exists. `Emb` is
not normalised; `scaled=False` drops g, and the model's `norm` decides N.

S0; zoo.md 1.4.
"""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.draw import uniform
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.space import IntRange
from lmzoo.types import Embeddings


@EMISSIONS("mixture")
class MixtureEmission(Emission):
    """A context-gated mixture of K context-free softmaxes; the logits have rank at most K."""

    @config
    class Config:
        """How many components, and whether each has its own scale."""

        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
        scaled: bool = True

    log_scale: nn.Parameter | None

    def __init__(self, config: Config, width: int, norm: Norm) -> None:
        super().__init__(config, width, norm)
        k = config.components
        self.gate = nn.Linear(width, k)
        self.means = nn.Parameter(torch.empty(k, width))
        self.register_parameter(
            "log_scale", nn.Parameter(torch.empty(k, 1)) if config.scaled else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Means and log-scales from U(K), as published."""
        k = self.config.components
        with torch.no_grad():
            self.means.copy_(uniform(tuple(self.means.shape), k))
            if self.log_scale is not None:
                self.log_scale.copy_(uniform(tuple(self.log_scale.shape), k))

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        return torch.logsumexp(self._joint(y, targets, table), dim=-1)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        words = torch.log_softmax(self._vectors() @ table.T, dim=-1)  # K V
        top = words.amax(dim=0)
        return torch.log(torch.softmax(self.gate(y), dim=-1) @ (words - top).exp()) + top

    def posterior(
        self, y: Float[Tensor, "*W B T E"], targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "*W B T K"]:
        """P(z_t | s_t, s_<t): which component each target came from."""
        return torch.softmax(self._joint(y, targets, table), dim=-1)

    def _joint(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        """Log P(z, target | y), (..., B, T, K)."""
        vectors = self._vectors()
        log_z = torch.logsumexp(vectors @ table.T, dim=-1)
        words = table[targets] @ vectors.T - log_z
        return torch.log_softmax(self.gate(y), dim=-1) + words

    def _vectors(self) -> Tensor:
        """exp(g_z) N(k_z), (K, E)."""
        vectors = normalise_vectors(self.means, self.norm)
        return vectors if self.log_scale is None else vectors * self.log_scale.exp()
