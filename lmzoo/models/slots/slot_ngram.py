r"""Slot n-gram: M independent soft pointers select the context tokens.

    p_n(j | t)    = softmax_{j<t}( Λ_n[t, j] + (B ê_j)_n )
    b_{n,t}       = Σ_j p_n(j | t) ê_j                  ê_j = N(e(s_j))
    P(z_t | s_<t) = softmax( A [b_{1,t}; ..; b_{M,t}] )
    P(s_t | s_<t) = Σ_z P(z_t | s_<t) softmax_v( exp(g_z) · Emb N(k_z) )[s_t]

Λ_n (T-1, T-1) scores positions, B (M, E) scores tokens; B has no bias because the softmax would
cancel it. ê_j, b_{n,t} and k_z are (E), A is (K, M·E), g is (K), Emb is (V, E).

Source: S0 (DLM30).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.initialisers import draw_uniform
from lmzoo.models.slots.base import SlotConfig, SlotModel
from lmzoo.models.slots.pointers import lag_pointer, unused_lags


@model("slot_ngram", aliases=("DLM30",), family="slot", document="S0", source="S0")
class SlotNgram(SlotModel):
    """N-gram model with M independent soft pointers to earlier tokens, mixture emission."""

    @config
    class Config(SlotConfig):
        """Embedding, components, slots and normaliser."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task, gate_width=config.slots * config.width)
        self.lags = nn.Parameter(torch.empty(config.slots, task.length - 1, task.length - 1))
        self.appeal = nn.Linear(config.width, config.slots, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw Λ from U(T)."""
        draw_uniform(self.lags, self.task.length)

    @property
    def unused(self) -> int:
        """Logits that no score depends on; see `unused_lags`."""
        return len(self.lags) * unused_lags(self.lags.shape[1])

    def pointers(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        size = tokens.shape[1]
        return lag_pointer(self.lags[:, :size, :size], self.appeal(vectors).mT)

    def prior(self) -> Float[Tensor, "N S S"]:
        """Return log softmax_{j<t} Λ_n[t, j], the pointers without token scores."""
        no_scores = self.lags.new_zeros(self.lags.shape[:2])
        return lag_pointer(self.lags, no_scores).log().mT
