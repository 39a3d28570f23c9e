r"""Mixture emission: K fixed distributions over words, gated by the context.

    P(z | y) = softmax_z( A y + a )
    P(v | z) = softmax_v( exp(g_z) · Emb N(k_z) )
    P(v | y) = Σ_z P(z | y) P(v | z)

`Emb` is not normalised; `scaled=False` drops g, and the model's `norm` decides N. The
second line is `components.py`, which other models gate in other ways.

S0; zoo.md 1.4.
"""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from lmzoo.catalogue import technique
from lmzoo.config import config
from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.emissions.components import Components
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import Norm
from lmzoo.functional.word_mixture import log_prob_of_words, logits
from lmzoo.search_space import IntRange
from lmzoo.types import Embeddings

technique(
    "mixture_emission",
    family="emission",
    document="S0",
    source="S0",
    summary="A context-gated mixture of K distributions over words (model.emission=mixture).",
)


@EMISSIONS("mixture")
class MixtureEmission(Components, Emission):
    """A context-gated mixture of K context-free softmaxes; the logits have rank at most K."""

    latent = "component"

    @config
    class Config:
        """How many components, and whether each has its own scale."""

        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=1)
        scaled: bool = True

    def __init__(self, config: Config, width: int, norm: Norm) -> None:
        Components.__init__(self, config.components, width, norm, scaled=config.scaled)
        self.config = config
        self.gate = nn.Linear(width, config.components)

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        if not self.few_words(targets, table):
            return torch.logsumexp(self.joint(y, targets, table), dim=-1)
        words = targets.expand(y.shape[:-1])
        gate, scores = self.gate, self.scores_by_word(table)
        return log_prob_of_words(y, gate.weight, gate.bias, scores, words)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        return log_mixture(torch.softmax(self.gate(y), dim=-1), self.word_table(table))

    def posterior(
        self, y: Float[Tensor, "*W B T E"], targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "*W B T K"]:
        """P(z_t | s_t, s_<t): which component each target came from."""
        return torch.softmax(self.joint(y, targets, table), dim=-1)

    def joint(
        self, y: Float[Tensor, "*W B T E"], targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "*W B T K"]:
        """Log P(z, target | y)."""
        return torch.log_softmax(self.logits(y), dim=-1) + self.word_scores(targets, table)

    def logits(self, y: Float[Tensor, "*W B T E"]) -> Float[Tensor, "*W B T K"]:
        """A y + a."""
        return logits(y, self.gate.weight, self.gate.bias)
