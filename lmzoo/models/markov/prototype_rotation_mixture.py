r"""Prototype-rotation mixture: a gate chooses a linear map of the previous token or a prototype.

    w             = softmax( Lin(E → K+1)( N(c_1) ) )
    P(s_t | s_<t) = w_0 softmax( Emb (M N(c_1) + b) )[s_t]
                  + Σ_{k=1..K} w_k softmax( Emb N(k_k) )[s_t]

c_1 = e(s_{t-1}), b and the prototypes k_k are (E), M is (E, E), w is (K+1), Emb is (V, E). Without
the map this is the aggregate Markov model; without prototypes (K = 0) it is the log-bilinear
bigram.

Source: S0 (DLM18; DLM28 with N = rms).
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.registry import preset
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.unique import embed_unique
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.functional.normalise import Norm, normalise_vectors


@model(
    "prototype_rotation_mixture", aliases=("DLM18",), family="latent-markov", document="S0",
    source="S0",
)  # fmt: skip
class PrototypeRotationMixture(LatentModel):
    """Mixture of one linear map of the previous token and K prototype vectors."""

    latent = "map or prototype"
    context_length = 1

    @config
    class Config(EmbeddingConfig):
        """Embedding, number of prototypes and normaliser."""

        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=0)
        """Number K of prototypes."""
        norm: Norm = Norm.NONE
        """Normaliser N of the previous token and the prototypes, not of the mapped vector."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.gate = nn.Linear(width, count + 1)
        self.map = nn.Linear(width, width)
        self.prototypes = Components(count, width, config.norm, scaled=False)

    def joint(self, tokens: Tensor) -> Tensor:
        targets, table = tokens[:, 1:], self.embedding.weight
        x, at = embed_unique(table, tokens[:, :-1])
        x = normalise_vectors(x, self.config.norm)
        y = self.map(x)
        log_z = log_normalisers(y, table)[:, None]
        mapped = (at(y) * table[targets]).sum(-1, keepdim=True) - at(log_z)
        scores = torch.cat([mapped, self.prototypes.token_log_probs(targets, table)], dim=-1)
        return (at(torch.log_softmax(self.gate(x), dim=-1)) + scores).transpose(1, 2)

    def next_joint(self, prefix: Tensor) -> Tensor:
        table = self.embedding.weight
        x = normalise_vectors(table[prefix[:, -1]], self.config.norm)
        mapped = torch.log_softmax(self.map(x) @ table.T, dim=-1)
        prototypes = self.prototypes.log_prob_table(table).expand(len(x), -1, -1)
        scores = torch.cat([mapped[:, None], prototypes], dim=1)
        return torch.log_softmax(self.gate(x), dim=-1)[..., None] + scores


preset(
    "prototype_rotation_mixture_sphere", model="prototype_rotation_mixture", fields={"norm": "rms"},
    aliases=("DLM28",), family="latent-markov", score="exact", document="S0", source="S0 (code)",
    summary="Prototype-rotation mixture with normalised token and prototype vectors.",
)  # fmt: skip
