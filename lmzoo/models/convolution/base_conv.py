r"""BaseConv: a convolution times a linear map of the same input.

    x'_t = x_t + u_t + (conv(u)_t) ⊙ (W u_t + b)                      u_t = N(x_t), in E
    conv(u)_t = Σ_{j<3} s_j ⊙ u_{t-j} + c                             layers 1, 3, ...
    conv(u)_t = u_t + Σ_j f_j ⊙ u_{t-j}                               layers 2, 4, ...
    f_j = W_2 relu(W_1 (j/(T−1), cos ε_j, −sin ε_j) + b_1) + b_2       ε_j = 10^−4 · 2πj/T

The long kernel f is the output of a network of 16 units. All matrices start at N(0, 0.02²).

Difference from zoology's code: no FFT.

Arora et al. 2023 (arXiv:2312.04927); HazyResearch/zoology `mixers/base_conv.py`.
"""

import math
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.layers import Linear
from lmzoo.blocks.residual_mixers import STD, ResidualMixers
from lmzoo.contract import model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.causal_convolution import causal_convolution

SHORT, UNITS = 3, 16


class BaseConvMixer(nn.Module):
    """One layer without its outer residual and norm."""

    def __init__(self, width: int, length: int, *, long: bool) -> None:
        super().__init__()
        self.map = Linear(width, width, STD)
        self.long, self.length = long, length
        if long:
            self.hidden, self.taps = Linear(3, UNITS, STD), Linear(UNITS, width, STD)
        else:
            self.short = nn.Conv1d(width, width, SHORT, groups=width)

    def forward(self, u: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        """Return u + conv(u) ⊙ (W u + b)."""
        return u + self._convolve(u) * self.map(u)

    def _convolve(self, u: Tensor) -> Tensor:
        if not self.long:
            return self.short(nn.functional.pad(u.mT, (SHORT - 1, 0))).mT
        j = torch.arange(u.shape[1], device=u.device, dtype=u.dtype)
        angle = 1e-4 * 2 * math.pi * j / self.length
        place = torch.stack([j / max(1, self.length - 1), angle.cos(), -angle.sin()], dim=-1)
        kernel = self.taps(self.hidden(place).relu())
        return u + causal_convolution(u, kernel.mT)


@model("base_conv", family="convolution", source="Arora et al. 2023 (arXiv:2312.04927)")
class BaseConv(ResidualMixers):
    """Language model of gated convolutions, short and long ones by turns."""

    @config
    class Config(EmbeddingConfig):
        """Embedding, emission and depth."""

        emission: Annotated[Any, EMISSIONS] = "vector"
        layers: Annotated[int, IntRange(1, 6)] = Field(4, ge=1)
        """Number D of layers."""

    def mixer(self, depth: int) -> nn.Module:
        return BaseConvMixer(self.config.width, self.task.length, long=depth % 2 == 1)
