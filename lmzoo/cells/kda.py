r"""Kimi Delta Attention (KDA): gated DeltaNet whose decay differs between key channels.

    q_t = unit(SiLU(conv(W_q x_t))) / √K    k_t = unit(SiLU(conv(W_k x_t)))    unit(u) = u / |u|
    v_t = SiLU(conv(W_v x_t))               β_t = m σ(W_β x_t)
    α_t = exp( −exp(A) softplus(W_α2 W_α1 x_t + b_α) )
    S_t = (I − β_t k_t k_tᵀ) diag(α_t) S_{t-1} + β_t k_t v_tᵀ
    y_t = W_y ( N(S_tᵀ q_t) ⊙ σ(W_g2 W_g1 x_t + b_g) )

α_t is one number per key channel, A and β_t one per head; W_α1 and W_g1 have V rows. A starts at
log U(1, 16), softplus(b_α) log-uniform in [0.001, 0.1]. m is `beta_max`, as in `deltanet`. Cuts 0
to 6 are those of `gated_deltanet`:

    0  beta          β_t → 1                                         3  unit    unit(u) → u
    1  delta         (I − β_t k_t k_tᵀ) diag(α_t) S_{t-1} → diag(α_t) S_{t-1}
    2  convolution   conv(u) → u: q, k, v read one token             4  norm    N(u) → u
    5  alpha         diag(α_t) S_{t-1} → S_{t-1}
    6  gate          σ(W_g2 W_g1 x_t + b_g) → 1
    7  vector        diag(α_t) → α_t: one α per head

Without alpha (5) and gate (6) it is `deltanet`.

Differences from the code of flash-linear-attention (`layers/kda.py`, bc3b101):

    there                              here                        why
    16 heads with K = 128              2 heads with K = E / 2      widths of 32 to 256
    models redraw at N(0, 0.02²)       U(±1/√fan-in) of the layer  `recipe.init=normal_0.02` does

Kimi Team 2025 (arXiv:2510.26692); N is RMSNorm per head, with the same scales for all heads.
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, OwnDraw
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.deltanet import DeltaRule
from lmzoo.cells.gated_deltanet import GatedConfig
from lmzoo.cells.matrix import delta_bias, linear, log_rates
from lmzoo.functional.matrix_state import Update

Cut = StrEnum("Cut", "BETA DELTA CONVOLUTION UNIT NORM ALPHA GATE VECTOR")


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Drop the cut of an α that another cut has removed."""
    return cuts - {Cut.VECTOR} if Cut.ALPHA in cuts else cuts


@CELLS("kda")
class KDA(DeltaRule):
    """The delta rule with a decay per key channel, and an output gate."""

    @config
    class Config(GatedConfig):
        """Number of heads, size of the values, range of β, and the cuts, by name or number."""

        expand_v: Annotated[int, Choice((1, 2))] = Field(1, ge=1)
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()

    def further_columns(self, values: int) -> dict[str, int]:
        return {"alpha": self.values, "gate": self.values}

    def further_weights(self) -> dict[str, tuple[tuple[int, ...], OwnDraw]]:
        heads, rank = self.config.heads, self.values
        decays = heads * (1 if Cut.VECTOR in self.config.cuts else self.keys)
        values = heads * self.values
        return {
            "log_rate": ((heads,), log_rates),
            "up_alpha": ((decays, rank), linear(rank)), "bias_alpha": ((decays,), delta_bias),
            "up_gate": ((values, rank), linear(rank)), "bias_gate": ((values,), linear(rank)),
        }  # fmt: skip

    def cut_weights(self) -> set[str]:
        cut, cuts = super().cut_weights(), self.config.cuts
        cut |= {"gate", "up_gate", "bias_gate"} if Cut.GATE in cuts else set()
        alpha = {"alpha", "log_rate", "up_alpha", "bias_alpha"}
        return cut | alpha if Cut.ALPHA in cuts else cut

    def log_alpha(self, z: dict[str, Tensor], like: Tensor) -> Tensor:
        if "alpha" not in z:
            return super().log_alpha(z, like)
        delta = nn.functional.linear(z["alpha"], self.w.up_alpha, self.w.bias_alpha)
        rate = self.w.log_rate.exp()[:, None]
        return -rate * nn.functional.softplus(self.split_heads(delta))

    def update(self, z: dict[str, Tensor]) -> Update:
        """Let the delta rule read the state after its decay."""
        update = super().update(z)
        if update.probe is None:
            return update
        return update._replace(erase=update.key, probe=update.log_decay.exp() * update.probe)

    def output_gate(self, gate: Tensor) -> Tensor:
        return torch.sigmoid(nn.functional.linear(gate, self.w.up_gate, self.w.bias_gate))
