r"""DeltaNet: a step replaces the value that the memory holds under the key.

    q_t = unit(SiLU(conv(W_q x_t))) / √K    k_t = unit(SiLU(conv(W_k x_t)))    unit(u) = u / |u|
    v_t = SiLU(conv(W_v x_t))               β_t = m σ(W_β x_t)
    S_t = (I − β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ
    y_t = W_y N(S_tᵀ q_t)

S is (K, V) for each head; β is one number per head; conv is causal, depthwise and 4 tokens long.
The step is one step of gradient descent on ½‖Sᵀk − v‖² with the rate β. m is `beta_max`, 1 as
published first; with m = 2 the eigenvalue 1 − β of the step may be negative, down to a reflection,
which parity and groups of permutations need (Grazzi et al. 2025). Cuts:

    0  beta          β_t → 1
    1  delta         (I − β_t k_t k_tᵀ) S_{t-1} → S_{t-1}: linear attention
    2  convolution   conv(u) → u: q, k, v read one token
    3  unit          unit(u) → u
    4  norm          N(u) → u

Differences from the code of flash-linear-attention (`layers/delta_net.py`, bc3b101):

    there                              here                        why
    4 heads                            2 heads                     widths of 32 to 256
    models redraw at N(0, 0.02²)       U(±1/√fan-in) of the layer  `recipe.init=normal_0.02` does

Schlag et al. 2021 (arXiv:2102.11174); Yang et al. 2024 (arXiv:2406.06484); Grazzi et al. 2025
(arXiv:2411.12537); N is RMSNorm per head, with the same scales for all heads.
"""

from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, OwnDraw, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, MatrixCell, head_size, linear, ones, taps
from lmzoo.functional.matrix_state import Update

Cut = StrEnum("Cut", "BETA DELTA CONVOLUTION UNIT NORM")
BetaMax = Annotated[float, Choice((1.0, 2.0))]


@config
class DeltaConfig:
    """Fields of the cells with the delta rule."""

    heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
    beta_max: BetaMax = Field(1.0, gt=0, le=2)
    """The largest β; above 1, steps have negative eigenvalues."""

    @model_validator(mode="after")
    def _no_range_without_beta(self) -> Any:
        if "beta" in self.cuts:  # type: ignore[attr-defined]
            object.__setattr__(self, "beta_max", 1.0)  # β is 1: equal functions, equal configs
        return self


class DeltaRule(MatrixCell):
    """Base class of DeltaNet and gated DeltaNet: linear attention with the delta rule."""

    convolved = ("q", "k", "v")

    def __init__(self, config: Any, width: int, length: int) -> None:
        super().__init__(config, width, length)
        size = head_size(width, config.heads)
        self.shape_state(config.heads, size, getattr(config, "expand_v", 1) * size)
        keys, values = config.heads * size, config.heads * self.values
        n = self.substeps
        columns = {"q": keys, "k": n * keys, "v": n * values}
        columns |= {"beta": n * config.heads, **self.further_columns(values)}
        shapes: dict[str, tuple[int, ...]]
        shapes = {name: (rows, width) for name, rows in columns.items()}
        shapes |= {"conv": (keys + n * (keys + values), WINDOW), "out": (width, values)}
        shapes["norm"] = (self.values,)
        further = self.further_weights()
        shapes |= {name: shape for name, (shape, _) in further.items()}
        cut = self.cut_weights()
        own = {"norm": ones, "conv": taps, "out": linear(values)}
        own |= {name: draw for name, (_, draw) in further.items()}
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, set(columns) - cut)

    def further_columns(self, values: int) -> dict[str, int]:
        """Return the projections of a subclass, by number of columns; those of the values."""
        return {}

    def further_weights(self) -> dict[str, tuple[tuple[int, ...], OwnDraw]]:
        """Return the shapes and draws of a subclass's weights."""
        return {}

    def cut_weights(self) -> set[str]:
        """Return the names of the weights that the cuts remove."""
        names = {"beta": "beta", "convolution": "conv", "norm": "norm"}
        return {weight for cut, weight in names.items() if cut in self.config.cuts}

    def log_alpha(self, z: dict[str, Tensor], like: Tensor) -> Float[Tensor, "*N n 1"]:
        """Return the logarithm of the decay α; DeltaNet has none, α = 1."""
        return torch.zeros_like(like[..., :1])

    def update(self, z: dict[str, Tensor]) -> Update:
        q, k, v = (self.split_heads(z[name]) for name in self.convolved)
        if "unit" not in self.config.cuts:
            q, k = unit(q), unit(k)
        q = q / self.keys**0.5
        beta = self.config.beta_max * torch.sigmoid(z["beta"])[..., None] if "beta" in z else 1.0
        log_alpha, written = self.log_alpha(z, q), beta * k
        if "delta" in self.config.cuts:
            return Update(q, written, v, log_alpha)
        return Update(q, written, v, log_alpha, log_alpha.exp() * written, k)


@CELLS("deltanet")
class DeltaNet(DeltaRule):
    """Linear attention with the delta rule."""

    @config
    class Config(DeltaConfig):
        """Number of heads, range of β, and the cuts, by name or number."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()


def unit(x: Float[Tensor, "*N K"]) -> Float[Tensor, "*N K"]:
    """Scale vectors to length 1; 0 stays 0."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
