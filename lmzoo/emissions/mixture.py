r"""Mixture emission: K distributions over tokens, gated by the context.

    P(z | y) = softmax_z( A y + a )
    P(v | z) = softmax_v( exp(g_z) · Emb N(k_z) )
    P(v | y) = Σ_z P(z | y) P(v | z)

`Emb` is not normalised. N is the model's `norm`; `scaled=False` leaves out g. The second line is
implemented in `components.py`.

Source: S0.
"""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.registry import technique
from lmzoo.base.search_space import IntRange
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.emissions.components import Components
from lmzoo.functional.logspace import exact_log_mixture
from lmzoo.functional.normalise import Norm
from lmzoo.functional.token_mixture import gate_logits, mixture_log_prob
from lmzoo.types import Embeddings

technique(
    "mixture_emission", family="emission", document="S0", source="S0",
    summary="A context-gated mixture of K distributions over tokens (model.emission=mixture).",
)  # fmt: skip


@EMISSIONS("mixture")
class MixtureEmission(Components, Emission):
    """A context-gated mixture of K context-free softmaxes; P(v | y) has rank at most K."""

    latent = "component"

    @config
    class Config:
        """Number of components, and whether each has a learned scale."""

        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
        scaled: bool = True

    def __init__(self, config: Config, width: int, norm: Norm) -> None:
        Components.__init__(self, config.components, width, norm, scaled=config.scaled)
        self.config = config
        self.gate = nn.Linear(width, config.components)

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        if not self.prefers_table(targets, table):
            return torch.logsumexp(self.joint(y, targets, table), dim=-1)
        words = targets.expand(y.shape[:-1])
        gate, scores = self.gate, self.transposed_log_prob_table(table)
        return mixture_log_prob(y, gate.weight, gate.bias, scores, words)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        weights = torch.log_softmax(self.gate(y), dim=-1)
        return exact_log_mixture(weights, self.log_prob_table(table)).clamp_max(0)

    def joint(
        self, y: Float[Tensor, "*W B T E"], targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "*W B T K"]:
        """Return log P(z, target | y)."""
        return torch.log_softmax(self.logits(y), dim=-1) + self.token_log_probs(targets, table)

    def logits(self, y: Float[Tensor, "*W B T E"]) -> Float[Tensor, "*W B T K"]:
        """Return A y + a."""
        return gate_logits(y, self.gate.weight, self.gate.bias)
