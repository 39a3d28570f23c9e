r"""The last two tokens condition two transitions between latent states.

    φ(s)          = Lin(E → K²)( N(e(s)) )           K x K potentials, from z to z'
    α(z)          = softmax_z( LSE_y φ(s_{t-2})[y, z] )
    P(z' | s_<t)  ∝ Σ_z α(z) exp φ(s_{t-1})[z, z']
                  = Σ_z softmax_z( log α(z) + LSE_y φ[z, y] ) softmax_z'( φ[z, z'] )
    P(s_t | s_<t) = Σ_z P(z | s_<t) softmax( Emb N(k_z) )[s_t]

Before `<start>` stands the vector 1, never normalised. The potentials of the second hop
also say how much mass each z passes on, as in a CRF, and not only where it goes. If φ
does not depend on z it is the aggregate Markov model.

Lafferty et al. 2001 (the potentials); S0 DLM17, and DLM27 with N = rms; zoo.md 2.
"""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.per_word import per_word
from lmzoo.catalogue import preset
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.logspace import log_floored
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.search_space import IntRange


@model(
    "trigram_latent_crf", aliases=("DLM17",), family="latent-markov", document="S0",
    source="Lafferty et al. 2001; S0",
)  # fmt: skip
class TrigramLatentCRF(ComponentModel):
    """Two token-conditioned transitions between K states, from an even start."""

    @config
    class Config:
        """How wide the vectors are, how many states there are, what is normalised."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        components: Annotated[int, IntRange(8, 128, log=True)] = Field(32, ge=1)
        """K; the potentials are K² per token."""
        norm: Norm = Norm.NONE
        """Applied to each context token by itself, and to the component vectors."""
        embedding_std: float | None = Field(None, gt=0)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.embedding = Table(task.vocab, width, config.embedding_std)
        self.potentials = nn.Linear(width, count * count)
        self.words = Components(count, width, config.norm, scaled=False)

    @property
    def state_size(self) -> int | None:
        return 2 * self.config.width

    def log_weights(self, tokens: Tensor) -> Tensor:
        x, at = per_word(self.table, tokens)
        phi = self._phi(normalise_vectors(x, self.config.norm))
        passed, kernel = at(torch.logsumexp(phi, dim=-1)), at(torch.softmax(phi, -1).flatten(1))
        alpha = self._after_first_hop(at(torch.logsumexp(phi, dim=-2)))
        second = torch.softmax(alpha + passed, dim=-1)[..., None, :]
        return log_floored(second @ kernel.unflatten(-1, phi.shape[1:])).squeeze(-2)

    def _after_first_hop(self, reached: Float[Tensor, "B t K"]) -> Float[Tensor, "B t K"]:
        """Log α of the token before each, the pad's first."""
        pad = self.table.new_ones(1, self.config.width)
        before = torch.logsumexp(self._phi(pad), dim=-2).expand(len(reached), 1, -1)
        return torch.log_softmax(torch.cat([before, reached[:, :-1]], dim=1), dim=-1)

    def _phi(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K K"]:
        return self.potentials(x).unflatten(-1, (self.config.components, -1))


preset(
    "trigram_latent_crf_sphere", model="trigram_latent_crf", fields={"norm": "rms"},
    aliases=("DLM27",), family="latent-markov", score="exact", document="S0", source="S0 (code)",
    summary="The two-token latent CRF, context tokens and component vectors on the sphere.",
)  # fmt: skip
