r"""Mamba: a selective state space whose every channel and state has its own decay.

    x_t = SiLU(conv(W_x u_t))
    B_t = W_B x_t         C_t = W_C x_t              Δ_t = softplus( W_Δ2 W_Δ1 x_t + b_Δ )
    S_t = a_t ⊙ S_{t-1} + B_t (Δ_t ⊙ x_t)ᵀ           a_t = exp(−exp(A) ⊙ Δ_t)
    y_t = W_y ( (S_tᵀ C_t + D ⊙ x_t) ⊙ swish(W_z u_t) )

u_t is the input (E); x_t and Δ_t have D = `expand` · E channels, B_t and C_t have N = `states`
columns; S and A are (N, D); A is stored as a vector. A starts at log 1 .. log N, D at 1,
softplus(b_Δ) log-uniform in [0.001, 0.1], W_Δ2 at U(±1/√rank). With `signed`, a_t is
2 exp(−exp(A) ⊙ Δ_t) − 1, in (−1, 1) (Grazzi et al. 2025). Cuts 0 to 2 are the rows of the
published ablation:

    0  delta   W_Δ2 W_Δ1 x_t                     3  skip          D ⊙ x_t
    1  b       B_t → B: the same for all         4  convolution   conv(u) → u
    2  c       C_t → C: likewise                 5  gate          swish(W_z u_t) → 1

Differences from the code of state-spaces/mamba (`modules/mamba_simple.py`, e9594ce):

    there                              here                        why
    models scale W_y by 1/√layers      not scaled                  a cell does not know its depth
    embeddings of N(0, 0.02²)          those of the model          `model.embedding_std=0.02` does

Gu & Dao 2023 (arXiv:2312.00752); Grazzi et al. 2025 (arXiv:2411.12537).
"""

from enum import StrEnum
from functools import partial
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice, IntRange
from lmzoo.cells.base import CELLS, OwnDraw, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, MatrixCell, delta_bias, linear, ones, tap_bias, taps
from lmzoo.functional.linear_recurrence import linear_recurrence
from lmzoo.functional.matrix_state import Update
from lmzoo.functional.selective_scan import selective_scan
from lmzoo.kernels.dispatch import has_kernels

Cut = StrEnum("Cut", "DELTA B C SKIP CONVOLUTION GATE")


@CELLS("mamba")
class Mamba(MatrixCell):
    """A diagonal state space whose step size, input map and output map read the token."""

    gpu_growth = ""
    convolved = ("x",)

    @config
    class Config:
        """Sizes and the cuts, by name or number."""

        states: Annotated[int, IntRange(4, 64, log=True)] = Field(16, ge=1)
        """N, the states of each channel."""
        expand: Annotated[int, Choice((1, 2))] = Field(2, ge=1)
        """Channels of x per column of the input."""
        signed: StrictBool = Field(default=False, exclude_if=lambda on: not on)
        """Let a_t be negative."""
        cuts: Annotated[frozenset[Cut], cuts_of(Cut)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        n, d, cuts = config.states, config.expand * width, config.cuts
        self.shape_state(1, n, d)
        rank = -(-width // 16)
        columns = {"x": d, "gate": d}
        cut = {name for name in ("b", "c", "skip", "gate") if name in cuts}
        cut |= {f"fixed_{name}" for name in ("b", "c") if name not in cuts}
        cut |= {"conv", "bias_conv"} if Cut.CONVOLUTION in cuts else set()
        cut |= {"low_delta", "delta"} if Cut.DELTA in cuts else set()
        shapes = {
            "x": (d, width), "gate": (d, width), "conv": (d, WINDOW), "bias_conv": (d,),
            "b": (n, d), "c": (n, d), "fixed_b": (n,), "fixed_c": (n,),
            "low_delta": (rank, d), "delta": (d, rank), "bias_delta": (d,),
            "log_rate": (n * d,), "skip": (d,), "out": (width, d),
        }  # fmt: skip
        own: dict[str, OwnDraw] = {
            "conv": taps, "bias_conv": tap_bias, "fixed_b": ones, "fixed_c": torch.randn,
            "delta": linear(rank), "bias_delta": delta_bias,
            "log_rate": partial(_log_integers, n), "skip": ones,
        }  # fmt: skip
        own |= {name: linear(d) for name in ("b", "c", "low_delta", "out")}
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, set(columns) - cut)

    def update(self, z: dict[str, Tensor]) -> Update:
        """Not used: the decay has one value per key and value, and no chunked form."""
        raise NotImplementedError

    def maps(
        self, x: Float[Tensor, "*N D"]
    ) -> tuple[Float[Tensor, "*N D"], Float[Tensor, "*N S"], Float[Tensor, "*N S"]]:
        """Return Δ, B and C."""
        w, linear = self.w, nn.functional.linear
        delta = w.bias_delta.expand_as(x)
        if w.delta is not None:
            delta = linear(linear(x, w.low_delta), w.delta, w.bias_delta)
        shape = *x.shape[:-1], self.keys
        b = w.fixed_b.expand(shape) if w.b is None else linear(x, w.b)
        c = w.fixed_c.expand(shape) if w.c is None else linear(x, w.c)
        return nn.functional.softplus(delta), b, c

    def decay(self, delta: Float[Tensor, "*N D"]) -> Float[Tensor, "*N S D"]:
        """Return a_t."""
        decay = (-self._rate() * delta[..., None, :]).exp()
        return 2 * decay - 1 if self.config.signed else decay

    def readout(self, o: Float[Tensor, "*N D"], z: dict[str, Tensor]) -> Float[Tensor, "*N E"]:
        """Return y from o = Sᵀ C."""
        o = o if self.w.skip is None else o + self.w.skip * z["x"]
        o = o * nn.functional.silu(z["gate"]) if "gate" in z else o
        return nn.functional.linear(o, self.w.out)

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        s, *memory = state
        parts, memory = self.prepare(projected[:, None], tuple(memory))
        z = {name: part[:, 0] for name, part in parts.items()}
        delta, b, c = self.maps(z["x"])
        s = self.decay(delta) * s[:, 0] + b[..., None] * (delta * z["x"])[..., None, :]
        return self.readout((c[..., None] * s).sum(-2), z), (s[:, None], *memory)

    def scan_projected(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        s, *memory = state
        z, memory = self.prepare(projected, tuple(memory))
        delta, b, c = self.maps(z["x"])
        if has_kernels(delta) and not self.config.signed:
            o, s = selective_scan(z["x"], delta, self._rate(), b, c, s[:, 0])
            return self.readout(o, z), (s[:, None], *memory)
        written = b[..., None] * (delta * z["x"])[..., None, :]
        decay = self.decay(delta).flatten(-2)
        states = linear_recurrence(decay, written.flatten(-2), s.flatten(1))
        states = states.unflatten(-1, (self.keys, self.values))
        o = (c[..., None] * states).sum(-2)
        return self.readout(o, z), (states[:, -1:], *memory)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        z, _ = self.prepare(projected[:, None], tuple(state[1:]))
        decay = self.decay(self.maps(z["x"][:, 0])[0]).flatten(-2)
        return {"decay": (1 + decay) / 2 if self.config.signed else decay}

    def _rate(self) -> Float[Tensor, "S D"]:
        """Return exp(A)."""
        return self.w.log_rate.exp().view(self.keys, -1)


def _log_integers(states: int, shape: tuple[int, ...]) -> Tensor:
    """Return log 1 .. log N, each for all channels: the rates of S4D-Real."""
    return torch.arange(1.0, states + 1).log().repeat_interleave(shape[0] // states)
