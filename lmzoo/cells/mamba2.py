r"""Mamba-2: a selective state space with one decay per head.

    x_t = SiLU(conv(W_x u_t))     B_t = SiLU(conv(W_B u_t))     C_t = SiLU(conv(W_C u_t))
    Δ_t = softplus( W_Δ u_t + b_Δ )                    a_t = exp( −exp(A) Δ_t )
    S_t = a_t S_{t-1} + Δ_t B_t x_tᵀ
    y_t = W_y N( (S_tᵀ C_t + D x_t) ⊙ swish(W_z u_t) )

u_t is the input (E). x_t has `expand` · E columns in n heads; B_t and C_t have N = `states` columns
and are shared by the heads. S is (N, P) for each head; Δ, A and D are one number per head. A starts
at log U(1, 16), D at 1, softplus(b_Δ) log-uniform in [0.001, 0.1]. Cuts:

    0  delta   W_Δ u_t                          4  skip          D x_t
    1  b       B_t → B: the same for all        5  convolution   conv(u) → u
    2  c       C_t → C: likewise                6  gate          swish(W_z u_t) → 1
    3  decay   a_t → 1: linear attention        7  norm          N(u) → u

Without delta, b and c (0, 1, 2) the cell is a linear time-invariant system.

Differences from the code of state-spaces/mamba (`modules/mamba2.py`, e9594ce):

    there                              here                        why
    N = 128                            N = 16                      widths of 32 to 256
    heads of 64 channels               2 heads                     the same
    models scale W_y by 1/√layers      not scaled                  a cell does not know its depth

Dao & Gu 2024 (arXiv:2405.21060); the cuts of selection are the ablation of Gu & Dao 2023
(arXiv:2312.00752). N is RMSNorm.
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice, IntRange
from lmzoo.cells.base import CELLS, OwnDraw, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import (
    WINDOW,
    MatrixCell,
    delta_bias,
    head_size,
    linear,
    log_rates,
    ones,
    tap_bias,
    taps,
)
from lmzoo.functional.matrix_state import Update

Cut = StrEnum("Cut", "DELTA B C DECAY SKIP CONVOLUTION GATE NORM")


@CELLS("mamba2")
class Mamba2(MatrixCell):
    """A state space whose step size, input map and output map read the token."""

    convolved = ("x", "b", "c")

    @config
    class Config:
        """Sizes and the cuts, by name or number."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
        states: Annotated[int, IntRange(4, 64, log=True)] = Field(16, ge=1)
        """N, the states of each channel."""
        expand: Annotated[int, Choice((1, 2))] = Field(2, ge=1)
        """Channels of x per column of the input."""
        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        n, cuts = config.heads, config.cuts
        self.shape_state(n, config.states, head_size(config.expand * width, n))
        inner = n * self.values
        columns = {"x": inner, "b": config.states, "c": config.states, "delta": n, "gate": inner}
        shapes = {name: (rows, width) for name, rows in columns.items()}
        cut = {name for name in ("delta", "b", "c", "gate", "norm") if name in cuts}
        cut |= {"conv", "bias_conv"} if Cut.CONVOLUTION in cuts else set()
        cut |= {"log_rate"} if Cut.DECAY in cuts else set()
        cut |= {"skip"} if Cut.SKIP in cuts else set()
        cut |= {f"fixed_{name}" for name in ("b", "c") if name not in cuts}
        present = set(columns) - cut
        convolved = sum(columns[name] for name in self.convolved if name in present)
        shapes |= {
            "conv": (convolved, WINDOW),
            "fixed_b": (config.states,), "fixed_c": (config.states,),
            "log_rate": (n,), "bias_delta": (n,), "skip": (n,), "norm": (inner,),
            "out": (width, inner), "bias_conv": (convolved,),
        }  # fmt: skip
        own: dict[str, OwnDraw] = {
            "conv": taps, "fixed_b": ones, "fixed_c": torch.randn,
            "log_rate": log_rates, "bias_delta": delta_bias, "skip": ones, "norm": ones,
            "out": linear(inner), "bias_conv": tap_bias,
        }  # fmt: skip
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, present)

    def update(self, z: dict[str, Tensor]) -> Update:
        w, x = self.w, self.split_heads(z["x"])
        heads = (*x.shape[:-1], self.keys)
        b = z["b"][..., None, :] if "b" in z else w.fixed_b
        c = z["c"][..., None, :] if "c" in z else w.fixed_c
        delta = z["delta"] + w.bias_delta if "delta" in z else w.bias_delta.expand(x.shape[:-1])
        delta = nn.functional.softplus(delta)[..., None]
        log_a = torch.zeros_like(delta)
        if w.log_rate is not None:
            log_a = -w.log_rate.exp()[:, None] * delta
        return Update(c.expand(heads), delta * b, x, log_a)

    def output(self, o: Tensor, z: dict[str, Tensor], update: Update) -> Tensor:
        w = self.w
        o = o if w.skip is None else o + w.skip[:, None] * update.value
        o = o.flatten(-2)
        o = o * nn.functional.silu(z["gate"]) if "gate" in z else o
        if w.norm is not None:
            o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5) * w.norm
        return nn.functional.linear(o, w.out)
