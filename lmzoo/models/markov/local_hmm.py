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
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.blocks.config import ComponentConfig
from lmzoo.contract import model
from lmzoo.functional.logspace import log_mixture
from lmzoo.models.markov.hmm import HiddenChain


@model(
    "local_hmm", aliases=("DLM15",), family="latent-markov", document="S0",
    source="Rabiner 1989; S0",
)  # fmt: skip
class LocalHMM(HiddenChain):
    """Two-step hidden Markov model: filter the last token, predict the next."""

    context_length = 1

    @config
    class Config(ComponentConfig):
        """Embedding and number of hidden states."""

    def log_weights(self, tokens: Tensor) -> Tensor:
        return log_mixture(self.filter_states(tokens), self.log_transition())

    def filter_states(self, tokens: Tensor) -> Float[Tensor, "B t K"]:
        """Return P(z | s), the posterior over the state that emitted each token."""
        return torch.softmax(self.start() + self.words.token_log_probs(tokens, self.table), dim=-1)

    def prior(self) -> Tensor:
        return log_mixture(self.start().exp()[None], self.log_transition())[0]
