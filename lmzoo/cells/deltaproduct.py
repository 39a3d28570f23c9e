r"""Gated DeltaProduct: several steps of the delta rule per token.

    q_t = unit(SiLU(conv(W_q x_t))) / √K      k_ti = unit(SiLU(conv(W_ki x_t)))   unit(u) = u / |u|
    v_ti = SiLU(conv(W_vi x_t))               β_ti = m σ(W_βi x_t)
    α_t = exp( −exp(A) softplus(W_α x_t + b_α) )
    S_t0 = α_t S_{t-1}
    S_ti = (I − β_ti k_ti k_tiᵀ) S_t{i-1} + β_ti k_ti v_tiᵀ                 i = 1 .. n
    y_t = W_y ( N(S_tnᵀ q_t) ⊙ swish(W_g x_t) )

n is `products`. The product of n reflections can be any rotation in n dimensions, so that one layer
tracks a permutation of n + 1 things, where β reaches m = `beta_max` = 2 (Siems et al. 2025). With
n = 1 it is `gated_deltanet`. Cuts are those of `gated_deltanet`:

    0  beta          β_ti → 1                                  3  unit    unit(u) → u
    1  delta         (I − β_ti k_ti k_tiᵀ) S_t{i-1} → S_t{i-1}  4  norm    N(u) → u
    2  convolution   conv(u) → u: q, k, v read one token       5  alpha   α_t → 1
    6  gate          swish(W_g x_t) → 1

Without alpha (5) and gate (6) it is the DeltaProduct of the paper, and with n = 1 `deltanet`.

Differences from the code of flash-linear-attention (`layers/gated_deltaproduct.py`, bc3b101):

    there                              here                        why
    6 heads with K = 256               2 heads with K = E / 2      widths of 32 to 256
    models redraw at N(0, 0.02²)       U(±1/√fan-in) of the layer  `recipe.init=normal_0.02` does

Siems et al. 2025 (arXiv:2502.10297); N is RMSNorm per head, with the same scales for all heads.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.deltanet import BetaMax
from lmzoo.cells.gated_deltanet import Cut, GatedConfig, GatedDeltaNet
from lmzoo.functional.matrix_state import Update, stacked


@CELLS("deltaproduct")
class DeltaProduct(GatedDeltaNet):
    """Gated DeltaNet with several steps of the memory per token."""

    @config
    class Config(GatedConfig):
        """Number of heads and of steps, sizes, range of β, and the cuts, by name or number."""

        products: Annotated[int, Choice((1, 2, 3, 4))] = Field(2, ge=1)
        """n, the steps per token."""
        beta_max: BetaMax = Field(2.0, gt=0, le=2)
        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        self.substeps = config.products
        super().__init__(config, width, length)

    def update(self, z: dict[str, Tensor]) -> Update:
        """Return the coefficients of n steps; α decays before the first."""
        split = {name: z[name].chunk(self.substeps, -1) for name in ("k", "v", "beta") if name in z}
        steps = []
        for i in range(self.substeps):
            own = {name: part for name, part in z.items() if i == 0 or name != "alpha"}
            own |= {name: part[i] for name, part in split.items()}
            steps.append(super().update(own))  # type: ignore[misc]
        return steps[0] if self.substeps == 1 else stacked(steps)
