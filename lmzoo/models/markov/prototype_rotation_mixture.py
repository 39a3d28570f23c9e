r"""Each step chooses between K fixed vectors and one linear map of the previous token.

    w             = softmax( Lin(E → K+1)( N(c_1) ) )
    P(s_t | s_<t) = w_0 softmax( Emb (M N(c_1) + b) )[s_t]
                  + Σ_{k=1..K} w_k softmax( Emb N(k_k) )[s_t]

Without the map it is the aggregate Markov model, without prototypes the log-bilinear
bigram.

S0 DLM18, and DLM28 with N = rms; zoo.md 2.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import LatentModel
from lmzoo.blocks.per_word import per_word
from lmzoo.catalogue import preset
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.log_normaliser import log_normalisers
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.search_space import IntRange


@model(
    "prototype_rotation_mixture",
    aliases=("DLM18",),
    family="latent-markov",
    document="S0",
    source="S0",
)
class PrototypeRotationMixture(LatentModel):
    """A gate over one map of the previous token (0) and K prototypes (1..K)."""

    latent = "map or prototype"

    @config
    class Config:
        """How wide the vectors are, how many prototypes there are, what is normalised."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        components: Annotated[int, IntRange(8, 512, log=True)] = Field(32, ge=0)
        norm: Norm = Norm.NONE
        """Applied to the previous token and to the prototypes, not to the mapped vector."""
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.embedding = Table(task.vocab, width, config.embedding_std)
        self.gate = nn.Linear(width, count + 1)
        self.map = nn.Linear(width, width)
        self.prototypes = Components(count, width, config.norm, scaled=False)

    @property
    def state_size(self) -> int | None:
        return self.config.width

    def joint(self, tokens: Tensor) -> Tensor:
        targets, table = tokens[:, 1:], self.embedding.weight
        x, at = per_word(table, tokens[:, :-1])
        x = normalise_vectors(x, self.config.norm)
        y = self.map(x)
        log_z = log_normalisers(y, table)[:, None]
        mapped = (at(y) * table[targets]).sum(-1, keepdim=True) - at(log_z)
        words = torch.cat([mapped, self.prototypes.word_scores(targets, table)], dim=-1)
        return (at(torch.log_softmax(self.gate(x), dim=-1)) + words).transpose(1, 2)

    def next_joint(self, prefix: Tensor) -> Tensor:
        table = self.embedding.weight
        x = normalise_vectors(table[prefix[:, -1]], self.config.norm)
        mapped = torch.log_softmax(self.map(x) @ table.T, dim=-1)
        fixed = self.prototypes.word_table(table).expand(len(x), -1, -1)
        words = torch.cat([mapped[:, None], fixed], dim=1)
        return torch.log_softmax(self.gate(x), dim=-1)[..., None] + words


preset(
    "prototype_rotation_mixture_sphere", model="prototype_rotation_mixture",
    fields={"norm": "rms"}, aliases=("DLM28",), family="latent-markov", score="exact", document="S0",
    source="S0 (code)",
    summary="Prototypes or a map, the previous token and the prototypes on the sphere.",
)  # fmt: skip
