r"""Gated DeltaNet: the delta rule with a decay that reads the token, and an output gate.

    q_t = unit(SiLU(conv(W_q x_t))) / √K    k_t = unit(SiLU(conv(W_k x_t)))    unit(u) = u / |u|
    v_t = SiLU(conv(W_v x_t))               β_t = m σ(W_β x_t)
    α_t = exp( −exp(A) softplus(W_α x_t + b_α) )
    S_t = α_t (I − β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ
    y_t = W_y ( N(S_tᵀ q_t) ⊙ swish(W_g x_t) )

S is (K, V) for each head, V = `expand_v` · K; α and β are one number per head; m is `beta_max`, as
in `deltanet`. A starts at log U(0, 16), softplus(b_α) log-uniform in [0.001, 0.1]. Cuts 0 to 4 are
those of `deltanet`:

    0  beta          β_t → 1                                   3  unit    unit(u) → u
    1  delta         (I − β_t k_t k_tᵀ) S_{t-1} → S_{t-1}      4  norm    N(u) → u
    2  convolution   conv(u) → u: q, k, v read one token       5  alpha   α_t → 1
    6  gate          swish(W_g x_t) → 1

Without alpha (5) and gate (6) it is `deltanet`.

Differences from the code of flash-linear-attention (`layers/gated_deltanet.py`, bc3b101):

    there                              here                        why
    6 heads with K = 256               2 heads with K = E / 2      widths of 32 to 256
    models redraw at N(0, 0.02²)       U(±1/√fan-in) of the layer  `recipe.init=normal_0.02` does

Yang et al. 2025 (arXiv:2412.06464); N is RMSNorm per head, with the same scales for all heads.
"""

from enum import StrEnum
from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, OwnDraw
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.deltanet import DeltaConfig, DeltaRule
from lmzoo.cells.matrix import delta_bias, log_rates

Cut = StrEnum("Cut", "BETA DELTA CONVOLUTION UNIT NORM ALPHA GATE")


@config
class GatedConfig(DeltaConfig):
    """Fields of the cells with the gated delta rule."""

    expand_v: Annotated[int, Choice((1, 2))] = Field(2, ge=1)
    """V / K."""


@CELLS("gated_deltanet")
class GatedDeltaNet(DeltaRule):
    """DeltaNet with a decay and an output gate."""

    @config
    class Config(GatedConfig):
        """Number of heads, sizes, range of β, and the cuts, by name or number."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def further_columns(self, values: int) -> dict[str, int]:
        return {"alpha": self.config.heads, "gate": values}

    def further_weights(self) -> dict[str, tuple[tuple[int, ...], OwnDraw]]:
        heads, rates = (self.config.heads,), partial(log_rates, low=0.0)
        return {"log_rate": (heads, rates), "bias_alpha": (heads, delta_bias)}

    def cut_weights(self) -> set[str]:
        cut = super().cut_weights() | ({"gate"} if Cut.GATE in self.config.cuts else set())
        alpha = {"alpha", "log_rate", "bias_alpha"}
        return cut | alpha if Cut.ALPHA in self.config.cuts else cut

    def log_alpha(self, z: dict[str, Tensor], like: Tensor) -> Tensor:
        if "alpha" not in z:
            return super().log_alpha(z, like)
        delta = nn.functional.softplus(z["alpha"] + self.w.bias_alpha)
        return -(self.w.log_rate.exp() * delta)[..., None]
