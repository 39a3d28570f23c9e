r"""Mamba-3: a selective state space with a trapezoidal step and a state that turns.

    Δ_t = softplus( W_Δ u_t + b_Δ )        a_t = exp( −softplus(W_A u_t) Δ_t )
    λ_t = σ( W_λ u_t )                     θ_t = θ_{t-1} + π Δ_t tanh( W_θ u_t )
    B_t = R(θ_t) ( N(W_B u_t) + b_B )      C_t = R(θ_t) ( N(W_C u_t) + b_C )
    S_t = a_t S_{t-1} + (1 − λ_t) Δ_t a_t B_{t-1} x_{t-1}ᵀ + λ_t Δ_t B_t x_tᵀ       x_t = W_x u_t
    y_t = W_y ( (S_tᵀ C_t + D x_t) ⊙ swish(W_z u_t) )

u_t is the input (E). x_t has `expand` · E columns in n heads; S is (N, P) for each head, N =
`states`. Δ, A, λ and D are one number per head, and b_B, b_C (N) per head; W_B, W_C and W_θ are
shared by the heads. R(θ) turns the first N / 2 columns in pairs, as a complex state does, so that
eigenvalues may be negative. N is RMSNorm with scales. b_B, b_C and D start at 1, softplus(b_Δ)
log-uniform in [0.001, 0.1]. There is no convolution: the trapezoid and the biases replace it. Cuts:

    0  trapezoid  λ_t → 1                   4  norm   N(u) → u
    1  rotation   R(θ_t) (u) → u            5  skip   D x_t
    2  bias       b_B; b_C                  6  gate   swish(W_z u_t) → 1
    3  decay      a_t → 1

Differences from the code of state-spaces/mamba (`modules/mamba3.py`, 0348a3d):

    there                              here                        why
    N = 128                            N = 16                      widths of 32 to 256
    heads of 64 channels               2 heads                     the same
    several inputs (MIMO) as option    one                         a speed-up of inference
    1 + u or 1 / (1 − u) for the       softplus(u)                 that of the paper's release;
    rate, since c69aaab                                            the other came later

Lahoti et al. 2026 (arXiv:2603.15569).
"""

import math
from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice, IntRange
from lmzoo.cells.base import CELLS, OwnDraw, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import MatrixCell, delta_bias, head_size, linear, ones
from lmzoo.functional.matrix_state import Update

LEAST_RATE = 1e-4
"""The least decay rate, as in the reference code."""
Cut = StrEnum("Cut", "TRAPEZOID ROTATION BIAS DECAY NORM SKIP GATE")
WEIGHTS = {
    Cut.TRAPEZOID: {"trap"}, Cut.ROTATION: {"angle"}, Cut.BIAS: {"bias_b", "bias_c"},
    Cut.DECAY: {"rate"}, Cut.NORM: {"norm_b", "norm_c"}, Cut.SKIP: {"skip"}, Cut.GATE: {"gate"},
}  # fmt: skip


@CELLS("mamba3")
class Mamba3(MatrixCell):
    """A state space with a scalar decay per head, the trapezoidal rule and a rotation."""

    substeps = 2

    @config
    class Config:
        """Sizes and the cuts, by name or number."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
        states: Annotated[int, IntRange(4, 64, log=True)] = Field(16, ge=2)
        """N, the states of each channel."""
        expand: Annotated[int, Choice((1, 2))] = Field(2, ge=1)
        """Channels of x per column of the input."""
        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        n, states = config.heads, config.states
        self.shape_state(n, states, head_size(config.expand * width, n))
        inner, self.pairs = n * self.values, max(1, states // 4)
        columns = {
            "x": inner, "b": states, "c": states, "delta": n, "rate": n, "trap": n,
            "angle": self.pairs, "gate": inner,
        }  # fmt: skip
        cut = set[str]().union(*(WEIGHTS[part] for part in config.cuts))
        shapes: dict[str, tuple[int, ...]] = {k: (rows, width) for k, rows in columns.items()}
        shapes |= {
            "bias_delta": (n,), "norm_b": (states,), "norm_c": (states,),
            "bias_b": (n, states), "bias_c": (n, states), "skip": (n,), "out": (width, inner),
        }  # fmt: skip
        own: dict[str, OwnDraw] = dict.fromkeys(("norm_b", "norm_c", "bias_b", "bias_c"), ones)
        own |= {"skip": ones, "bias_delta": delta_bias, "out": linear(inner)}
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, set(columns) - cut)

    def initial_memory(self, start: Tensor) -> State:
        """Return the angles, and B and x of the token before."""
        sizes = (self.pairs, self.keys, self.values)
        return tuple(start.new_zeros(len(start), self.heads, size) for size in sizes)

    def prepare(
        self, projected: Float[Tensor, "B T G"], memory: State
    ) -> tuple[dict[str, Tensor], State]:
        """Return Δ, B, C, x and B, x of the step before, by head, and the memory."""
        z, w = super().prepare(projected, ())[0], self.w
        angle, *before = memory
        z["delta"] = nn.functional.softplus(z["delta"] + w.bias_delta)
        z["x"] = self.split_heads(z["x"])
        turned = None
        if "angle" in z:
            moved = math.pi * z["delta"][..., None] * torch.tanh(z["angle"])[..., None, :]
            turned = angle[:, None] + moved.cumsum(1)
            angle = turned[:, -1]
        for name, scales, bias in (("b", w.norm_b, w.bias_b), ("c", w.norm_c, w.bias_c)):
            part = z[name]
            if scales is not None:
                part = part * torch.rsqrt(part.square().mean(-1, keepdim=True) + 1e-5) * scales
            part = part[..., None, :].expand(*part.shape[:-1], self.heads, self.keys)
            part = part if bias is None else part + bias
            z[name] = part if turned is None else rotated(part, turned)
        for name, first in zip(("b", "x"), before, strict=True):
            z[f"{name}_before"] = torch.cat([first[:, None], z[name][:, :-1]], dim=1)
        return z, (angle, z["b"][:, -1], z["x"][:, -1])

    def update(self, z: dict[str, Tensor]) -> Update:
        """Return two steps: the token before is written, then S decays and the token is."""
        delta = z["delta"][..., None]
        new = torch.sigmoid(z["trap"])[..., None] if "trap" in z else torch.ones_like(delta)
        log_a = torch.zeros_like(delta)
        if "rate" in z:
            log_a = -nn.functional.softplus(z["rate"])[..., None].clamp_min(LEAST_RATE) * delta
        steps = (
            (z["c"], z["c"]),
            ((1 - new) * delta * z["b_before"], new * delta * z["b"]),
            (z["x_before"], z["x"]),
            (torch.zeros_like(delta), log_a),
        )
        return Update(*(torch.stack(pair, dim=-3) for pair in steps))

    def output(self, o: Tensor, z: dict[str, Tensor], update: Update) -> Tensor:
        o = o if self.w.skip is None else o + self.w.skip[:, None] * z["x"]
        return super().output(o, z, update)


def rotated(x: Float[Tensor, "*B N"], angle: Float[Tensor, "*B A"]) -> Float[Tensor, "*B N"]:
    """Turn the pairs of the first 2 A columns by the angles."""
    turned, rest = x.split([2 * angle.shape[-1], x.shape[-1] - 2 * angle.shape[-1]], dim=-1)
    first, second = turned.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angle.cos(), angle.sin()
    pairs = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1)
    return torch.cat([pairs.flatten(-2), rest], dim=-1)
