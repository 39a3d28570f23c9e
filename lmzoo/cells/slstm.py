r"""The sLSTM of xLSTM: exponential gates, a normaliser state, and thirteen cuts.

    u_t = SiLU(conv(x_t))                      causal, depthwise, 4 tokens
    z̃ = x_t W_z + h_{t-1} R_z + b_z            ĩ = u_t W_i + h_{t-1} R_i
    f̃ = u_t W_f + h_{t-1} R_f + b_f            õ = x_t W_o + h_{t-1} R_o + b_o
    i = exp(ĩ)                                 f = σ(f̃)
    c_t = f ⊙ c_{t-1} + i ⊙ tanh(z̃)            memory
    n_t = f ⊙ n_{t-1} + i                      normaliser
    h_t = σ(õ) ⊙ c_t / n_t                     y_t = N(h_t)       output

W and R are block-diagonal, one block per head; the number of heads is the largest one up to `heads`
that divides H into heads of two units or more. The code stores c and n divided by exp(m_t), with
m_t = max(log f + m_{t-1}, ĩ), so that no exponential exceeds 1; h_t is the same for every m. The
bias of ĩ would cancel in c_t / n_t, so only cells with cut 8 or 9 have it. c_0 and n_0 are 0 and
m_1 = ĩ, so n_1 = 1. The initial state is h_0, 0 for the start of a model. A cut replaces a term:

    0  input_to_write     u_t W_i         6  state_to_output      h_{t-1} R_o
    1  input_to_forget    u_t W_f         7  state_to_candidate   h_{t-1} R_z
    2  input_to_output    x_t W_o         8  exponential          exp(ĩ) → σ(ĩ + b_i)
    3  forget_gate        f → 1           9  normaliser           c_t / n_t → tanh(c_t)
    4  state_to_write     h_{t-1} R_i    10  output_gate          σ(õ) → 1
    5  state_to_forget    h_{t-1} R_f    11  convolution          SiLU(conv(x_t)) → x_t
    12  norm              N(u) → u

Cuts 4 to 7 are the authors' memory mixing; without it the scan is parallel. Without exponential (8)
and normaliser (9) the cell is the LSTM. W starts with variance 2/(5H), R at 0, the bias of f of
unit j of d in a head at 5 − 12 (j / (d − 1))^0.3, other biases at 0.

Differences from the code of NX-AI/xlstm (`blocks/slstm`, 032a6fb):

    there                              here                        why
    b_i                                only with cut 8 or 9        it has no effect on h
    exponent 0.3 to 1.6 over blocks    0.3                         a cell does not know its depth

Beck et al. 2024 (arXiv:2405.04517); N is LayerNorm per head, without bias.
"""

import dataclasses
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Cell, Inputs, OwnDraw, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, convolve, ones, tap_bias, taps
from lmzoo.functional.affine import affine
from lmzoo.functional.linear_recurrence import linear_recurrence

Cut = StrEnum(
    "Cut",
    "INPUT_TO_WRITE INPUT_TO_FORGET INPUT_TO_OUTPUT FORGET_GATE STATE_TO_WRITE "
    "STATE_TO_FORGET STATE_TO_OUTPUT STATE_TO_CANDIDATE EXPONENTIAL NORMALISER OUTPUT_GATE "
    "CONVOLUTION NORM",
)
GATES = "ifoz"
INPUT = {"xi": Cut.INPUT_TO_WRITE, "xf": Cut.INPUT_TO_FORGET, "xo": Cut.INPUT_TO_OUTPUT}
MIXING = {
    "hi": Cut.STATE_TO_WRITE, "hf": Cut.STATE_TO_FORGET, "ho": Cut.STATE_TO_OUTPUT,
    "hz": Cut.STATE_TO_CANDIDATE,
}  # fmt: skip
WHOLE = {Cut.FORGET_GATE: "f", Cut.OUTPUT_GATE: "o"}
"""Cuts that remove a gate with its weights."""
MAX_LOG = 80.0
"""Largest m whose exponential is used; there tanh is ±1."""


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    for gate, name in WHOLE.items():
        if gate in cuts:
            cuts = cuts - {INPUT[f"x{name}"], MIXING[f"h{name}"]}
    return cuts


@CELLS("slstm")
class SLSTM(Cell):
    """An LSTM whose memory is a weighted average; its state is (h, c, n, m)."""

    gpu_growth = "each token is a loop of torch operations"
    zero_start = 1.0

    @config
    class Config:
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()
        heads: int = Field(4, ge=1)

        def uncut(self) -> Any:
            """Return the config without the cuts that zero weights can express."""
            zero = set(INPUT.values()) | set(MIXING.values())
            return dataclasses.replace(self, cuts=self.cuts - zero)

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts, h = config.cuts, width
        # A head of one unit has the norm 0.
        possible = (n for n in range(min(h // 2, config.heads), 1, -1) if h % n == 0)
        self.heads = next(possible, 1)
        square = (h, h) if self.heads == 1 else (self.heads, h // self.heads, h // self.heads)
        shapes: dict[str, tuple[int, ...]]
        shapes = {f"x{gate}": square for gate in GATES} | {f"h{gate}": square for gate in GATES}
        shapes |= {f"b{gate}": (h,) for gate in GATES}
        self.names = [
            g for g in GATES if not any(WHOLE[cut] == g for cut in WHOLE.keys() & config.cuts)
        ]
        cut = {name for name in shapes if name[1] not in self.names}
        if not config.cuts & {Cut.EXPONENTIAL, Cut.NORMALISER}:
            cut.add("bi")
        cut |= {name for name, path in (INPUT | MIXING).items() if path in config.cuts}
        power_law = partial(_power_law, heads=self.heads)
        own: dict[str, OwnDraw] = {f"x{gate}": partial(_small_normal, width=h) for gate in GATES}
        own |= {f"b{gate}": power_law if gate == "f" else torch.zeros for gate in GATES}
        biases = {f"b{gate}" for gate in GATES}
        shapes |= {"conv": (h, WINDOW), "bias_conv": (h,), "norm": (h,)}
        own |= {f"h{gate}": torch.zeros for gate in GATES}
        own |= {"conv": taps, "bias_conv": tap_bias, "norm": ones}
        self.convolves = Cut.CONVOLUTION not in config.cuts
        cut |= set() if self.convolves else {"conv", "bias_conv"}
        cut |= {"norm"} if Cut.NORM in config.cuts else set()
        self.w = Weights(shapes, cut, fan_in=h, biases=biases, own=own)

    @property
    def state_size(self) -> int:
        return (4 + (WINDOW - 1) * self.convolves) * self.width

    def initial_state(self, start: Tensor) -> State:
        h, zero = self.shift_start(start), torch.zeros_like(start)
        window = (start.new_zeros(len(start), WINDOW - 1, self.width),) if self.convolves else ()
        return h, zero, zero, _least_like(start), *window

    def project(self, x: Tensor) -> Tensor:
        return x if self.convolves else self._logits(x, x)

    def _logits(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the parts of the logits that do not depend on the state."""
        parts = []
        for gate in self.names:
            inputs, weight = (u if gate in "if" else x), getattr(self.w, f"x{gate}")
            bias = getattr(self.w, f"b{gate}")
            if self.heads == 1 or weight is None:
                parts.append(affine(inputs, weight, bias))
            else:
                part = self._mix(inputs, weight)
                parts.append(part if bias is None else part + bias)
        return torch.cat(parts, dim=-1)

    def _mix(self, u: Float[Tensor, "*N H"], weight: Tensor) -> Float[Tensor, "*N H"]:
        """Multiply by a matrix, or by that of each head."""
        if self.heads == 1:
            return u @ weight
        return torch.einsum("...nd,nde->...ne", u.unflatten(-1, (self.heads, -1)), weight).flatten(
            -2
        )

    def _enter(self, projected: Float[Tensor, "B T G"], window: State) -> tuple[Tensor, State]:
        """Return the logits of T steps without the state's part, and the next window."""
        if not window:
            return projected, ()
        u, after = convolve(projected, window[0], self.w.conv, self.w.bias_conv)
        return self._logits(projected, nn.functional.silu(u)), (after,)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return i, divided by exp(m_t); f and o."""
        m = state[3]
        logits, _ = self._enter(projected[:, None], state[4:])
        log_i, log_f, o, _ = self._parts(logits[:, 0], state[0])
        gates = {"i": torch.exp(log_i - torch.maximum(log_f + m, log_i))}
        gates |= {"f": torch.exp(log_f)} if "f" in self.names else {}
        return gates | ({} if o is None else {"o": o})

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        logits, window = self._enter(projected[:, None], state[4:])
        h, core = self._recur(logits[:, 0], state[:4])
        return self._normed(h), (*core, *window)

    def _recur(self, logits: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute one step from the logits of the inputs: (h, (h, c, n, m))."""
        h, c, n, m = state
        log_i, log_f, o, z = self._parts(logits, h)
        log_f = log_f + m
        m = torch.maximum(log_f, log_i).detach()  # h does not depend on m
        f, i = torch.exp(log_f - m), torch.exp(log_i - m)
        c, n = f * c + i * z, f * n + i
        h = self._output(c, n, m, o)
        return h, (h, c, n, m)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        if any(getattr(self.w, f"h{gate}") is not None for gate in GATES):
            return None
        logits, _ = self._enter(self.project_inputs(x), self.initial_state(start)[4:])
        log_i, log_f, o, z = self._parts(logits, None)
        total = log_f.detach().cumsum(-2)
        m = total + torch.cummax(log_i.detach() - total, dim=-2).values
        before = torch.cat([m[..., :1, :], m[..., :-1, :]], dim=-2)
        f, i = torch.exp(log_f + before - m), torch.exp(log_i - m)
        zero = torch.zeros_like(start)
        c, n = linear_recurrence(f, i * z, zero), linear_recurrence(f, i, zero)
        return self._normed(self._output(c, n, m, o))

    def _parts(
        self, projected: Tensor, h: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Return log i, log f, σ(õ) and tanh(z̃)."""
        logits = dict(zip(self.names, projected.split(self.width, dim=-1), strict=True))
        for gate in self.names:
            weight = getattr(self.w, f"h{gate}")
            if weight is not None and h is not None:
                logits[gate] = logits[gate] + self._mix(h, weight)
        log_i = logsigmoid(logits["i"]) if Cut.EXPONENTIAL in self.cuts else logits["i"]
        log_f = logsigmoid(logits["f"]) if "f" in logits else torch.zeros_like(log_i)
        o = torch.sigmoid(logits["o"]) if "o" in logits else None
        return log_i, log_f, o, torch.tanh(logits["z"])

    def _output(self, c: Tensor, n: Tensor, m: Tensor, o: Tensor | None) -> Tensor:
        if Cut.NORMALISER in self.cuts:
            h = torch.tanh(c * torch.exp(m.clamp_max(MAX_LOG)))
        else:
            h = c / n
        return h if o is None else o * h

    def _normed(self, h: Float[Tensor, "*N H"]) -> Float[Tensor, "*N H"]:
        """Return N(h), the output."""
        if self.w.norm is None:
            return h
        flat = h.reshape(-1, self.width)
        return torch.group_norm(flat, self.heads, self.w.norm, eps=1e-5).view(h.shape)


def _least_like(start: Tensor) -> Tensor:
    """Return m_0: finite, because ∞ − ∞ is no number, and so small that exp(m_0 − m_1) is 0."""
    return torch.full_like(start, -1e30)


def _small_normal(shape: tuple[int, ...], width: int) -> Tensor:
    """Return a draw from N(0, 2 / 5H)."""
    return torch.randn(shape) / width**0.5 * 0.4**0.5


def _power_law(shape: tuple[int, ...], heads: int) -> Tensor:
    """Return 5 − 12 (j / (d − 1))^0.3 for unit j of each head of d units."""
    return (5 - 12 * torch.linspace(0, 1, shape[0] // heads) ** 0.3).repeat(heads)
