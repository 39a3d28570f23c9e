r"""H3: two long convolutions, one of the keys and one of the products of keys and values.

    q_t, k_t, v_t = W_q u_t + b_q, W_k u_t + b_k, W_v u_t + b_v           u_t = N(x_t), in E
    κ_t = Σ_j s_j ⊙ k_{t-j} + p ⊙ k_t                                     shift
    S_t = Σ_j c_j κ_{t-j} v_{t-j}ᵀ + D κ_t v_tᵀ                           in each head, (d, d)
    x'_t = x_t + W_o (q_t S_t) + b_o
    c_j = 2 Re Σ_n C_n Δ / (1 − ½ Δ A_n) ((1 + ½ Δ A_n) / (1 − ½ Δ A_n))^j

s is a kernel of T − 1 taps per channel; c is that of a diagonal state space per head, N complex
states each. A_n starts at −½ + iπn, Δ log-uniform in [0.001, 0.1], C, D and p at N(0, 1), s at
U(±1/√(T−1)), matrices and embeddings at N(0, 0.02²), b at 0. There are E / d heads; q_t S_t reads a
head by its d channels of q.

Differences from zoology's code: the vector B of both state spaces is part of their C; no FFT.

Fu et al. 2023 (arXiv:2212.14052); HazyResearch/zoology `mixers/h3`.
"""

import math
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.layers import Linear
from lmzoo.blocks.residual_mixers import STD, ResidualMixers
from lmzoo.contract import model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.causal_convolution import causal_convolution

STEPS = (0.001, 0.1)
"""Range of the initial Δ."""


class H3Mixer(nn.Module):
    """One layer without its residual and norm."""

    def __init__(self, width: int, size: int, states: int, length: int) -> None:
        super().__init__()
        self.size = size
        heads = width // size
        self.query, self.key, self.value, self.output = (
            Linear(width, width, STD) for _ in range(4)
        )
        self.shift = nn.Parameter(torch.empty(width, length))
        self.shift_skip = nn.Parameter(torch.empty(width))
        self.log_step = nn.Parameter(torch.empty(heads))
        self.log_decay = nn.Parameter(torch.empty(heads, states))
        self.frequency = nn.Parameter(torch.empty(heads, states))
        self.read = nn.Parameter(torch.empty(heads, states, 2))  # C, real and imaginary
        self.skip = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the two kernels."""
        bound = self.shift.shape[1] ** -0.5
        nn.init.uniform_(self.shift, -bound, bound)
        nn.init.uniform_(self.log_step, math.log(STEPS[0]), math.log(STEPS[1]))
        nn.init.constant_(self.log_decay, math.log(0.5))
        self.frequency.copy_(
            math.pi * torch.arange(self.frequency.shape[1]).expand_as(self.frequency)
        )
        nn.init.normal_(self.read, std=0.5**0.5)
        for skip in (self.shift_skip, self.skip):
            nn.init.normal_(skip)

    def kernel(self, length: int) -> Float[Tensor, "heads t"]:
        """Return the first taps c of the diagonal state spaces."""
        # In polar form: a state of frequency 0 then has no imaginary part, not even by rounding.
        step = self.log_step.exp()[:, None]
        real, imaginary = self.log_decay.exp() * step / 2, self.frequency * step / 2
        above = (1 + real).square() + imaginary.square()
        below = (1 - real).square() + imaginary.square()
        first = torch.atan2(imaginary, 1 + real)
        turn = first + torch.atan2(imaginary, 1 - real)
        lags = torch.arange(length, device=step.device)
        angle = first[..., None] + turn[..., None] * lags
        size = (0.5 * (below / above).log()[..., None] * lags).exp()
        scale = 2 * step * above.rsqrt()
        cosine, sine = self.read.unbind(-1)
        wave = cosine[..., None] * angle.cos() - sine[..., None] * angle.sin()
        return (scale[..., None] * size * wave).sum(1)

    def forward(self, u: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        """Return W_o (q_t S_t) + b_o."""
        q, k, v = self.query(u), self.key(u), self.value(u)
        k = causal_convolution(k, self.shift) + self.shift_skip * k
        q, k, v = (part.unflatten(-1, (-1, self.size)) for part in (q, k, v))
        products = k[..., :, None] * v[..., None, :]
        s = causal_convolution(products, self.kernel(u.shape[1]))
        s = s + self.skip[:, None, None] * products
        return self.output((q[..., None] * s).sum(-2).flatten(-2))


@model("h3", family="convolution", source="Fu et al. 2023 (arXiv:2212.14052)")
class H3(ResidualMixers):
    """Language model of H3 layers: gated long convolutions whose kernels are state spaces."""

    @config
    class Config(EmbeddingConfig):
        """Embedding, emission, depth, and sizes of a layer."""

        emission: Annotated[Any, EMISSIONS] = "vector"
        layers: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        """Number D of layers."""
        size: int = Field(2, ge=1)
        """Channels d of a head; divides `width`."""
        states: int = Field(32, ge=1)
        """Complex states N of a head."""

        @model_validator(mode="after")
        def _size_divides_width(self) -> Any:
            if self.width % self.size:
                raise UserError(f"size={self.size} must divide width={self.width}")
            return self

    def mixer(self, depth: int) -> nn.Module:
        c = self.config
        return H3Mixer(c.width, c.size, c.states, self.task.length - 1)
