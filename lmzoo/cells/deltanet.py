r"""DeltaNet: a step replaces the value that the memory holds under the key.

    q_t = unit(SiLU(conv(W_q x_t)))      k_t = unit(SiLU(conv(W_k x_t)))     unit(u) = u / |u|
    v_t = SiLU(conv(W_v x_t))            β_t = σ(W_β x_t)
    S_t = (I − β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ
    y_t = W_y N(S_tᵀ q_t)

S is (K, V) for each head; β is one number per head; conv is causal, depthwise and 4 tokens long.
The step is one step of gradient descent on ½‖Sᵀk − v‖² with the rate β. Cuts:

    0  beta          β_t → 1
    1  delta         (I − β_t k_t k_tᵀ) S_{t-1} → S_{t-1}: linear attention
    2  convolution   conv(u) → u: q, k, v read one token
    3  unit          unit(u) → u
    4  norm          N(u) → u

Schlag et al. 2021 (arXiv:2102.11174); Yang et al. 2024 (arXiv:2406.06484); N is RMSNorm per head.
"""

from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from lmzoo.cells.base import CELLS, OwnDraw, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, MatrixCell, head_size, ones, taps
from lmzoo.config import config
from lmzoo.functional.matrix_state import Update
from lmzoo.search_space import Choice


class Cut(StrEnum):
    """A part of the cell that can be removed; its number is its position."""

    BETA = "beta"
    DELTA = "delta"
    CONVOLUTION = "convolution"
    UNIT = "unit"
    NORM = "norm"


class DeltaRule(MatrixCell):
    """Base class of DeltaNet and gated DeltaNet: linear attention with the delta rule."""

    convolved = ("q", "k", "v")

    def __init__(self, config: Any, width: int, length: int) -> None:
        super().__init__(config, width, length)
        size = head_size(width, config.heads)
        self.shape_state(config.heads, size, size)
        inner = config.heads * size
        columns = {name: inner for name in self.convolved}
        columns |= {"beta": config.heads, **self.further_columns(inner)}
        shapes = {name: (rows, width) for name, rows in columns.items()}
        shapes |= {"conv": (3 * inner, WINDOW), "norm": (inner,), "out": (width, inner)}
        further = self.further_weights()
        shapes |= {name: (config.heads,) for name in further}
        cut = self.cut_weights()
        own = {"norm": ones, "conv": taps, **further}
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, set(columns) - cut)

    def further_columns(self, inner: int) -> dict[str, int]:
        """Return the projections of a subclass, by number of columns."""
        return {}

    def further_weights(self) -> dict[str, OwnDraw]:
        """Return the weights of a subclass, one number per head each, and their draws."""
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
        beta = torch.sigmoid(z["beta"])[..., None] if "beta" in z else 1.0
        log_alpha, written = self.log_alpha(z, q), beta * k
        if "delta" in self.config.cuts:
            return Update(q, written, v, log_alpha)
        return Update(q, written, v, log_alpha, log_alpha.exp() * written, k)


@CELLS("deltanet")
class DeltaNet(DeltaRule):
    """Linear attention with the delta rule."""

    @config
    class Config:
        """Number of heads and the cuts, by name or number."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()


def unit(x: Float[Tensor, "*N K"]) -> Float[Tensor, "*N K"]:
    """Scale vectors to length 1; 0 stays 0."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
