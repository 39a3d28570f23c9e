r"""Bigram latent CRF: the previous token conditions one transition between K latent states.

    φ(s)          = Lin(E → K²)( e(s) )             potentials (K, K) from z to z'
    P(z' | s)     = softmax_z'( LSE_z φ(s)[z, z'] )
    P(s_t | s_<t) = Σ_z P(z | s_{t-1}) softmax( Emb k_z )[s_t]

The initial state z is uniform. e(s) and k_z are (E), Emb is (V, E). If φ(s)[z, z'] does not depend
on z, this is the aggregate Markov model. S0 leaves the formula incomplete; this one follows its
code.

Source: Lafferty et al. 2001 (the potentials); S0 (DLM16).
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.unique import embed_unique
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.normalise import Norm


@config
class StatesConfig(EmbeddingConfig):
    """Fields of a latent CRF."""

    components: Annotated[int, IntRange(8, 128, log=True)] = Field(32, ge=1)
    """Number K of states. A token has K² potentials."""


class LatentCRF(ComponentModel):
    """The embeddings, potentials and words of a latent CRF."""

    def __init__(self, config: StatesConfig, task: Task, norm: Norm = Norm.NONE) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.potentials = nn.Linear(width, count * count)
        self.words = Components(count, width, norm, scaled=False)

    def phi(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K K"]:
        """Return the potentials of the vectors x."""
        return self.potentials(x).unflatten(-1, (self.config.components, -1))


@model(
    "bigram_latent_crf", aliases=("DLM16",), family="latent-markov", document="S0",
    source="Lafferty et al. 2001; S0",
)  # fmt: skip
class BigramLatentCRF(LatentCRF):
    """Bigram latent CRF: the previous token conditions one transition of K states."""

    context_length = 1

    @config
    class Config(StatesConfig):
        """Embedding and number of states."""

    def log_weights(self, tokens: Tensor) -> Tensor:
        x, at = embed_unique(self.table, tokens)
        return at(torch.log_softmax(torch.logsumexp(self.phi(x), dim=-2), dim=-1))
