"""Latent CRFs: tokens condition transitions between K latent states."""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.layers import EmbeddingConfig
from lmzoo.blocks.unique import embed_unique
from lmzoo.contract import Task, model
from lmzoo.emissions.mixture import Components
from lmzoo.functional.logspace import log_floored
from lmzoo.functional.normalise import Norm, normalise_vectors

ChainStates = Annotated[int, IntRange(8, 128, log=True), Field(ge=1)]


@config
class StatesConfig(EmbeddingConfig):
    """Fields of a latent CRF."""

    components: ChainStates = 32
    """Number K of states. A token has K² potentials."""


class LatentCRF(ComponentModel):
    """The embeddings, potentials and words of a latent CRF."""

    Config = StatesConfig

    def __init__(
        self,
        config: StatesConfig,
        task: Task,
        norm: Norm = Norm.NONE,
    ):
        super().__init__(config, task)
        width = config.width
        count = config.components
        self.potentials = nn.Linear(width, count * count)
        self.words = Components(count, width, norm, scaled=False)

    def phi(self, x: Float[Tensor, "N E"]) -> Float[Tensor, "N K K"]:
        """Return the potentials of the vectors x."""
        potentials = self.potentials(x)
        return potentials.unflatten(-1, (self.config.components, -1))


@model(
    "bigram_latent_crf",
    aliases=("DLM16",),
    family="latent-markov",
    document="S0",
    source="Lafferty et al. 2001; S0",
)
class BigramLatentCRF(LatentCRF):
    """Bigram latent CRF: the previous token conditions one transition of K states.

        φ(s)          = Lin(E → K²)( e(s) )             potentials (K, K) from z to z'
        P(z' | s)     = softmax_z'( LSE_z φ(s)[z, z'] )
        P(s_t | s_<t) = Σ_z P(z | s_{t-1}) softmax( Emb k_z )[s_t]

    The initial state z is uniform. e(s) and k_z are (E), Emb is (V, E). If φ(s)[z, z'] does not
    depend on z, this is the aggregate Markov model. S0 leaves the formula incomplete; this one
    follows its code.
    """

    context_length = 1

    def log_weights(self, tokens: Tensor) -> Tensor:
        # Potentials of each distinct token, K² numbers; `at` copies them to the positions.
        x, at = embed_unique(self.table, tokens)
        phi = self.phi(x)
        in_mass = phi.logsumexp(-2)
        return at(in_mass.log_softmax(-1))


@model(
    "trigram_latent_crf",
    aliases=("DLM17",),
    family="latent-markov",
    document="S0",
    source="Lafferty et al. 2001; S0",
)
class TrigramLatentCRF(LatentCRF):
    """Trigram latent CRF: the last two tokens condition two transitions of K states.

        φ(s)          = Lin(E → K²)( N(e(s)) )           potentials (K, K) from z to z'
        α(z)          = softmax_z( LSE_y φ(s_{t-2})[y, z] )
        P(z' | s_<t)  ∝ Σ_z α(z) exp φ(s_{t-1})[z, z']
                      = Σ_z softmax_z( log α(z) + LSE_y φ[z, y] ) softmax_z'( φ[z, z'] )
        P(s_t | s_<t) = Σ_z P(z | s_<t) softmax( Emb N(k_z) )[s_t]

    The initial state is uniform. A missing s_{t-2} has the vector 1, which is not normalised. As in
    a CRF, the second transition is normalised once over all paths, so its potentials also weigh the
    states z. e(s) and k_z are (E), Emb is (V, E). If φ(s)[z, z'] does not depend on z, this is the
    aggregate Markov model.
    """

    context_length = 2

    @config
    class Config(StatesConfig):
        """Embedding, number of states and normaliser."""

        norm: Norm = Norm.NONE
        """Normaliser N of each context token vector and each component vector."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task, config.norm)

    def log_weights(self, tokens: Tensor) -> Tensor:
        x, at = embed_unique(self.table, tokens)
        x = normalise_vectors(x, self.config.norm)
        phi = self.phi(x)
        out_mass = at(phi.logsumexp(-1))
        transition = phi.softmax(-1).flatten(1)
        in_mass = at(phi.logsumexp(-2))
        alpha = self._first_transition(in_mass)
        # Normalised once over all paths, as in a CRF: what leaves a state weighs it, too.
        weights = (alpha + out_mass).softmax(-1)
        from_state = weights[..., None, :]
        step = at(transition).unflatten(-1, phi.shape[1:])
        # A product of probabilities, not a sum of logs: K² numbers a position need no logsumexp.
        reached = from_state @ step
        return log_floored(reached).squeeze(-2)

    def _first_transition(self, in_mass: Float[Tensor, "B t K"]) -> Float[Tensor, "B t K"]:
        """Return log α at each position, from LSE_y φ[y, z] of the token at each position."""
        # Before the first token stands the vector 1, as in all models of this family.
        pad = self.table.new_ones(1, self.config.width)
        before = self.phi(pad).logsumexp(-2)
        before = before.expand(len(in_mass), 1, -1)
        earlier = in_mass[:, :-1]
        shifted = torch.cat([before, earlier], 1)
        return shifted.log_softmax(-1)
