"""Selective state spaces: Mamba, Mamba-2 and Mamba-3."""

import math
from enum import StrEnum
from functools import partial
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool
from torch import Tensor
from torch.nn.functional import linear, silu, softplus

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.cells.base import CELLS, Expand, Heads, OutputAndState, Parts, State, States
from lmzoo.cells.cuts import Cuts, removed
from lmzoo.cells.draws import WINDOW, by_columns, delta_bias, log_rates, ones, tap_bias
from lmzoo.cells.matrix import MatrixCell, WeightTable, head_size, normed
from lmzoo.functional.matrix_state import Update, stacked
from lmzoo.functional.selective_scan import selective_scan
from lmzoo.functional.sequence import delayed
from lmzoo.types import Shape, Vectors

MambaCut = StrEnum("MambaCut", "DELTA B C SKIP CONVOLUTION GATE")


@CELLS("mamba")
class Mamba(MatrixCell):
    """A diagonal state space whose step size, input map and output map read the token.

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

        there                              here                      why
        models scale W_y by 1/√layers      not scaled                one or few layers
        embeddings of N(0, 0.02²)          those of the model        `model.embedding_std=0.02` does

    Gu & Dao 2023 (arXiv:2312.00752); Grazzi et al. 2025 (arXiv:2411.12537).
    """

    convolved = ("x",)

    @config
    class Config:
        """Sizes and the cuts, by name or number."""

        states: States = 16
        """N, the states of each channel."""
        expand: Expand = 2
        """Channels of x per column of the input."""
        signed: StrictBool = Field(default=False, exclude_if=lambda on: not on)
        """Let a_t be negative."""
        cuts: Cuts[MambaCut] = frozenset()

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        n = config.states
        d = config.expand * width
        cuts = config.cuts
        self.shape_state(1, n, d)
        rank = -(-width // 16)  # as published, rounded up
        cut = {name for name in ("b", "c", "skip", "gate") if name in cuts}
        # A fixed vector stands for a map that is cut.
        cut |= {f"fixed_{name}" for name in ("b", "c") if name not in cuts}
        if MambaCut.CONVOLUTION in cuts:
            cut |= {"conv", "bias_conv"}
        if MambaCut.DELTA in cuts:
            cut |= {"low_delta", "delta"}
        weights: WeightTable = {
            "x": d,
            "gate": d,
            "conv": ((d, WINDOW), by_columns),
            "bias_conv": (d, tap_bias),
            "b": ((n, d), by_columns),
            "c": ((n, d), by_columns),
            "fixed_b": (n, ones),
            "fixed_c": (n, torch.randn),
            "low_delta": ((rank, d), by_columns),
            "delta": ((d, rank), by_columns),
            "bias_delta": (d, delta_bias),
            "log_rate": (n * d, partial(_log_integers, n)),
            "skip": (d, ones),
            "out": ((width, d), by_columns),
        }
        self.set_weights(weights, cut)

    def update(self, z: Parts) -> Update:
        """Not used: the decay has one value per key and value, and no chunked form."""
        raise NotImplementedError

    def maps(
        self,
        x: Float[Tensor, "*N D"],
    ) -> tuple[Float[Tensor, "*N D"], Float[Tensor, "*N S"], Float[Tensor, "*N S"]]:
        """Return Δ, B and C."""
        w = self.w

        # Where W_Δ is cut, Δ is the same for all tokens.
        delta = w.bias_delta.expand_as(x)
        if w.delta is not None:
            # As published, by a map of low rank.
            low = linear(x, w.low_delta)
            delta = linear(low, w.delta, w.bias_delta)
        shape = x.shape[:-1] + (self.keys,)
        if w.b is None:
            b = w.fixed_b.expand(shape)
        else:
            b = linear(x, w.b)
        if w.c is None:
            c = w.fixed_c.expand(shape)
        else:
            c = linear(x, w.c)
        return softplus(delta), b, c

    def readout(self, o: Float[Tensor, "*N D"], z: Parts) -> Vectors:
        """Return y from o = Sᵀ C."""
        w = self.w
        if w.skip is not None:
            o = o + w.skip * z["x"]
        if "gate" in z:
            o = o * silu(z["gate"])
        return linear(o, w.out)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        # `prepare` works on sequences: here of one token.
        sequence = projected[:, None]
        parts, memory = self.prepare(sequence, state[1:])
        z = {name: part[:, 0] for name, part in parts.items()}
        x = z["x"]
        delta, b, c = self.maps(x)
        exponent = -self._rate() * delta[..., None, :]
        decay = exponent.exp()
        if self.config.signed:
            # Decays in (−1, 1): eigenvalues below 0 can count modulo 2.
            decay = 2 * decay - 1
        value = (delta * x)[..., None, :]
        written = b[..., None] * value
        # The state of the base class has an axis of heads: here one.
        s = decay * state[0][:, 0] + written
        o = (c[..., None] * s).sum(-2)
        y = self.readout(o, z)
        return y, (s[:, None],) + memory

    def scan_projected(self, projected: Tensor, state: State) -> OutputAndState:
        z, memory = self.prepare(projected, state[1:])
        x = z["x"]
        delta, b, c = self.maps(x)
        start = state[0][:, 0]
        rate = self._rate()
        signed = self.config.signed
        o, s = selective_scan(x, delta, rate, b, c, start, signed=signed)
        y = self.readout(o, z)
        return y, (s[:, None],) + memory

    def _rate(self) -> Float[Tensor, "S D"]:
        rate = self.w.log_rate.exp()
        return rate.view(self.keys, -1)


def _log_integers(states: int, shape: Shape) -> Tensor:
    """Return log 1 .. log N, each for all channels: the rates of S4D-Real."""
    rates = torch.arange(1.0, states + 1).log()
    channels = shape[0] // states
    return rates.repeat_interleave(channels)


Mamba2Cut = StrEnum("Mamba2Cut", "DELTA B C DECAY SKIP CONVOLUTION GATE NORM")


@CELLS("mamba2")
class Mamba2(MatrixCell):
    """A state space whose step size, input map and output map read the token.

        x_t = SiLU(conv(W_x u_t))     B_t = SiLU(conv(W_B u_t))     C_t = SiLU(conv(W_C u_t))
        Δ_t = softplus( W_Δ u_t + b_Δ )                    a_t = exp( −exp(A) Δ_t )
        S_t = a_t S_{t-1} + Δ_t B_t x_tᵀ
        y_t = W_y N( (S_tᵀ C_t + D x_t) ⊙ swish(W_z u_t) )

    u_t is the input (E). x_t has `expand` · E columns in n heads; B_t and C_t have N = `states`
    columns and are shared by the heads. S is (N, P) for each head; Δ, A and D are one number per
    head. A starts at log U(1, 16), D at 1, softplus(b_Δ) log-uniform in [0.001, 0.1]. Cuts:

        0  delta   W_Δ u_t                          4  skip          D x_t
        1  b       B_t → B: the same for all        5  convolution   conv(u) → u
        2  c       C_t → C: likewise                6  gate          swish(W_z u_t) → 1
        3  decay   a_t → 1: linear attention        7  norm          N(u) → u

    Without delta, b and c (0, 1, 2) the cell is a linear time-invariant system.

    Differences from the code of state-spaces/mamba (`modules/mamba2.py`, e9594ce):

        there                              here                       why
        N = 128                            N = 16                     widths of 32 to 256
        heads of 64 channels               2 heads                    the same
        models scale W_y by 1/√layers      not scaled                 one or few layers

    Dao & Gu 2024 (arXiv:2405.21060); the cuts of selection are the ablation of Gu & Dao 2023
    (arXiv:2312.00752). N is RMSNorm.
    """

    convolved = ("x", "b", "c")

    @config
    class Config:
        """Sizes and the cuts, by name or number."""

        heads: Heads = 2
        states: States = 16
        """N, the states of each channel."""
        expand: Expand = 2
        """Channels of x per column of the input."""
        cuts: Cuts[Mamba2Cut] = frozenset()

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        n = config.heads
        states = config.states
        cuts = config.cuts
        self.shape_state(n, states, head_size(config.expand * width, n))
        inner = n * self.values
        cut = {name for name in ("delta", "b", "c", "gate", "norm") if name in cuts}
        if Mamba2Cut.CONVOLUTION in cuts:
            cut |= {"conv", "bias_conv"}
        if Mamba2Cut.DECAY in cuts:
            cut |= {"log_rate"}
        if Mamba2Cut.SKIP in cuts:
            cut |= {"skip"}
        # A map that is cut is replaced by a vector, the same for all tokens.
        cut |= {f"fixed_{name}" for name in ("b", "c") if name not in cuts}
        # The convolution runs over x and the maps that remain.
        maps = 2 - len(cut & {"b", "c"})
        convolved = inner + maps * states
        weights: WeightTable = {
            "x": inner,
            "b": states,
            "c": states,
            "delta": n,
            "gate": inner,
            "conv": ((convolved, WINDOW), by_columns),
            "fixed_b": (states, ones),
            "fixed_c": (states, torch.randn),
            "log_rate": (n, log_rates),
            "bias_delta": (n, delta_bias),
            "skip": (n, ones),
            "norm": (inner, ones),
            "out": ((width, inner), by_columns),
            "bias_conv": (convolved, tap_bias),
        }
        self.set_weights(weights, cut)

    def update(self, z: Parts) -> Update:
        w = self.w
        x = self.split_heads(z["x"])
        heads = x.shape[:-1] + (self.keys,)
        if "b" in z:
            # One map for all heads, as published.
            b = z["b"][..., None, :]
        else:
            b = w.fixed_b
        if "c" in z:
            c = z["c"][..., None, :]
        else:
            c = w.fixed_c
        if "delta" in z:
            delta = z["delta"] + w.bias_delta
        else:
            delta = w.bias_delta.expand(x.shape[:-1])
        delta = softplus(delta)[..., None]
        log_a = torch.zeros_like(delta)
        if w.log_rate is not None:
            rate = w.log_rate.exp()
            log_a = -rate[:, None] * delta
        c = c.expand(heads)
        # Δ scales what is written, as the step of a discretised equation.
        return Update(c, delta * b, x, log_a)

    def output(self, o: Tensor, z: Parts, update: Update) -> Tensor:
        w = self.w
        if w.skip is not None:
            skip = w.skip[:, None]
            o = o + skip * update.value
        o = o.flatten(-2)
        if "gate" in z:
            o = o * silu(z["gate"])
        h = normed(o, w.norm)
        return linear(h, w.out)


LEAST_RATE = 1e-4
"""The least decay rate, as in the reference code."""
Mamba3Cut = StrEnum("Mamba3Cut", "TRAPEZOID ROTATION BIAS DECAY NORM SKIP GATE")
WEIGHTS = {
    Mamba3Cut.TRAPEZOID: {"trap"},
    Mamba3Cut.ROTATION: {"angle"},
    Mamba3Cut.BIAS: {"bias_b", "bias_c"},
    Mamba3Cut.DECAY: {"rate"},
    Mamba3Cut.NORM: {"norm_b", "norm_c"},
    Mamba3Cut.SKIP: {"skip"},
    Mamba3Cut.GATE: {"gate"},
}


@CELLS("mamba3")
class Mamba3(MatrixCell):
    """A state space with a scalar decay per head, the trapezoidal rule and a rotation.

        Δ_t = softplus( W_Δ u_t + b_Δ )        a_t = exp( −softplus(W_A u_t) Δ_t )
        λ_t = σ( W_λ u_t )                     θ_t = θ_{t-1} + π Δ_t tanh( W_θ u_t )
        B_t = R(θ_t) ( N(W_B u_t) + b_B )      C_t = R(θ_t) ( N(W_C u_t) + b_C )
        S_t = a_t S_{t-1} + (1 − λ_t) Δ_t a_t B_{t-1} x_{t-1}ᵀ + λ_t Δ_t B_t x_tᵀ      x_t = W_x u_t
        y_t = W_y ( (S_tᵀ C_t + D x_t) ⊙ swish(W_z u_t) )

    u_t is the input (E). x_t has `expand` · E columns in n heads; S is (N, P) for each head, N =
    `states`. Δ, A, λ and D are one number per head, and b_B, b_C (N) per head; W_B, W_C and W_θ are
    shared by the heads. R(θ) turns the first N / 2 columns in pairs, as a complex state does, so
    that eigenvalues may be negative. N is RMSNorm with scales. b_B, b_C and D start at 1,
    softplus(b_Δ) log-uniform in [0.001, 0.1]. There is no convolution: the trapezoid and the biases
    replace it. Cuts:

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

    substeps = 2

    @config
    class Config:
        """Sizes and the cuts, by name or number."""

        heads: Heads = 2
        states: Annotated[int, IntRange(4, 64, log=True)] = Field(16, ge=2)
        """N, the states of each channel."""
        expand: Expand = 2
        """Channels of x per column of the input."""
        cuts: Cuts[Mamba3Cut] = frozenset()

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        n = config.heads
        states = config.states
        self.shape_state(n, states, head_size(config.expand * width, n))
        inner = n * self.values
        # A rotation turns pairs, and half of the keys.
        self.pairs = max(1, states // 4)
        weights: WeightTable = {
            "x": inner,
            "b": states,
            "c": states,
            "delta": n,
            "rate": n,
            "trap": n,
            "angle": self.pairs,
            "gate": inner,
            "bias_delta": (n, delta_bias),
            "norm_b": (states, ones),
            "norm_c": (states, ones),
            "bias_b": ((n, states), ones),
            "bias_c": ((n, states), ones),
            "skip": (n, ones),
            "out": ((width, inner), by_columns),
        }
        self.set_weights(weights, removed(WEIGHTS, config.cuts))

    def initial_memory(self, start: Tensor) -> State:
        """Return the angles, and B and x of the token before."""
        memory: State = ()
        for size in (self.pairs, self.keys, self.values):
            memory += (start.new_zeros(len(start), self.heads, size),)
        return memory

    def prepare(
        self,
        projected: Float[Tensor, "B T G"],
        memory: State,
    ) -> tuple[Parts, State]:
        """Return Δ, B, C, x and B, x of the step before, by head, and the memory."""
        z = super().prepare(projected, ())[0]
        w = self.w
        angle, b_before, x_before = memory
        logit = z["delta"] + w.bias_delta
        z["delta"] = softplus(logit)
        z["x"] = self.split_heads(z["x"])
        turned = None
        if "angle" in z:
            # tanh bounds the angle of a step by π Δ.
            speed = z["angle"].tanh()
            step = z["delta"][..., None]
            moved = math.pi * step * speed[..., None, :]
            turned = angle[:, None] + moved.cumsum(1)
            # The angle goes on after a chunk: the sum starts from the last one.
            angle = turned[:, -1]
        b = normed(z["b"], w.norm_b)
        z["b"] = self._map(b, w.bias_b, turned)
        c = normed(z["c"], w.norm_c)
        z["c"] = self._map(c, w.bias_c, turned)
        # The trapezoid also reads B and x of the token before; the first one is in the state.
        memory = (angle,)
        for name, before in (("b", b_before), ("x", x_before)):
            part = z[name]
            z[f"{name}_before"] = delayed(part, before)
            memory += (part[:, -1],)
        return z, memory

    def _map(
        self,
        part: Tensor,
        bias: Tensor | None,
        angle: Tensor | None,
    ) -> Tensor:
        """Return B or C of each head, from the part that all heads share."""
        lead = part.shape[:-1]
        shape = lead + (self.heads, self.keys)
        part = part[..., None, :].expand(shape)
        if bias is not None:
            part = part + bias
        if angle is None:
            return part
        return rotated(part, angle)

    def update(self, z: Parts) -> Update:
        """Return two steps: the token before is written, then S decays and the token is."""
        delta = z["delta"][..., None]
        if "trap" in z:
            new = z["trap"].sigmoid()[..., None]
        else:
            # λ_t = 1: only the new token is written.
            new = torch.ones_like(delta)
        log_a = torch.zeros_like(delta)
        if "rate" in z:
            rate = softplus(z["rate"])[..., None]
            # A rate of 0 would never forget, and its gradient is 0, too.
            log_a = -rate.clamp_min(LEAST_RATE) * delta
        # Two writes a token: the value before, which decays with the state, then the new one.
        kept = torch.zeros_like(delta)
        old_key = (1 - new) * delta * z["b_before"]
        old = Update(z["c"], old_key, z["x_before"], kept)
        key = new * delta * z["b"]
        own = Update(z["c"], key, z["x"], log_a)
        return stacked([old, own])

    def output(self, o: Tensor, z: Parts, update: Update) -> Tensor:
        if self.w.skip is not None:
            skip = self.w.skip[:, None]
            o = o + skip * z["x"]
        return super().output(o, z, update)


def rotated(
    x: Float[Tensor, "*B N"],
    angle: Float[Tensor, "*B A"],
) -> Float[Tensor, "*B N"]:
    """Turn the pairs of the first 2 A columns by the angles."""
    size = 2 * angle.shape[-1]
    turned = x[..., :size]
    by_pair = turned.unflatten(-1, (-1, 2))
    first, second = by_pair.unbind(-1)
    cos = angle.cos()
    sin = angle.sin()
    real = first * cos - second * sin
    imaginary = first * sin + second * cos
    pairs = torch.stack([real, imaginary], -1)
    rest = x[..., size:]
    return torch.cat([pairs.flatten(-2), rest], -1)
