r"""Local HMM: a bigram from a hidden Markov model that is cut to two time steps.

    P(z | s)            = π_z B[z, s] / Σ_y π_y B[y, s]           filter
    P(z' | s)           = Σ_z P(z | s) Tr[z, z']                  predict
    P(s_t | s_<t)       = Σ_z' P(z' | s_{t-1}) B[z', s_t]

π (K) and the rows of Tr (K, K) are softmaxes of logits. B[z, v] = softmax_v( Emb k_z ) is shared by
both time steps; k_z is (E), Emb is (V, E). The model is an aggregate Markov model whose class
distribution P(z' | s) is computed from the emissions instead of by a free gate.

Source: Rabiner 1989; S0 (DLM15, text only).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.config import ComponentConfig
from lmzoo.blocks.latent import ComponentModel
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.log_weights import LogWeights
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components
from lmzoo.functional.initialisers import uniform
from lmzoo.functional.logspace import log_mixture
from lmzoo.functional.normalise import Norm


@model(
    "local_hmm", aliases=("DLM15",), family="latent-markov", document="S0",
    source="Rabiner 1989; S0",
)  # fmt: skip
class LocalHMM(ComponentModel):
    """Two-step hidden Markov model: filter the last token, predict the next."""

    @config
    class Config(ComponentConfig):
        """Embedding and number of hidden states."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        count = config.components
        self.embedding = EmbeddingTable(task.vocab, config.width, config.embedding_std)
        self.start = LogWeights(count)
        self.transition = nn.Parameter(torch.empty(count, count))
        self.words = Components(count, config.width, Norm.NONE, scaled=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the transition logits from U(1), like the start logits."""
        with torch.no_grad():
            self.transition.copy_(uniform(tuple(self.transition.shape), 1))

    @property
    def context_length(self) -> int | None:
        return 1

    def log_weights(self, tokens: Tensor) -> Tensor:
        return log_mixture(self.filter_states(tokens), self._log_transition())

    def filter_states(self, tokens: Tensor) -> Float[Tensor, "B t K"]:
        """Return P(z | s), the posterior over the state that emitted each token."""
        return torch.softmax(self.start() + self.words.token_log_probs(tokens, self.table), dim=-1)

    def prior(self) -> Tensor:
        return log_mixture(self.start().exp()[None], self._log_transition())[0]

    def _log_transition(self) -> Float[Tensor, "K K"]:
        return torch.log_softmax(self.transition, dim=-1)
