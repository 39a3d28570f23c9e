r"""Aligned aggregate Markov model: the conditioning token (parent) may be any earlier token.

    P(s_t | s_<t) = Σ_{a<t} P(a | t) Σ_z P(s_t | z) P(z | s_a)
    P(a | t)      = softmax_{a<t}( Λ[a, t] )
    P(z | s)      = softmax_z( A e(s) + a )
    P(v | z)      = softmax_v( Emb N(k_z) )

Λ is (T, T), e(s) and k_z are (E), A is (K, E), Emb is (V, E). With all prior mass on a = t-1 it is
the aggregate Markov model.

Source: S0 (DLM13; DLM25 with N = rms).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.registry import preset
from lmzoo.blocks.config import ComponentConfig
from lmzoo.blocks.parents import Alignment, ParentModel
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import Norm


@model(
    "aligned_aggregate_markov", aliases=("DLM13",), family="latent-markov", document="S0",
    source="S0",
)  # fmt: skip
class AlignedAggregateMarkov(ParentModel):
    """Aggregate Markov model mixed over all earlier tokens with a learned alignment."""

    @config
    class Config(ComponentConfig):
        """Embedding, number of classes and normaliser."""

        norm: Norm = Norm.NONE
        """Normaliser N of the component vectors."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.alignment = Alignment(task.length)
        self.gate = nn.Linear(config.width, config.components)
        self.words = Components(config.components, config.width, config.norm, scaled=False)

    def log_prior(self, count: int) -> Tensor:
        return self.alignment(count)

    def pair_scores(self, parents: Tensor, targets: Tensor) -> Tensor:
        scores = self.words.token_log_probs(targets, self.embedding.weight)
        return log_mixture(self._class_probs(parents), scores.transpose(1, 2))

    def child_scores(self, parents: Tensor) -> Tensor:
        return log_mixture(
            self._class_probs(parents), self.words.log_prob_table(self.embedding.weight)
        )

    def _class_probs(self, parents: Tensor) -> Float[Tensor, "B A K"]:
        """Return P(z | s_a) for every parent a."""
        return torch.softmax(self.gate(self.embedding(parents)), dim=-1)


preset(
    "aligned_aggregate_markov_sphere", model="aligned_aggregate_markov", fields={"norm": "rms"},
    aliases=("DLM25",), family="latent-markov", score="exact", document="S0", source="S0 (code)",
    summary="Aligned aggregate Markov model with normalised component vectors.",
)  # fmt: skip
