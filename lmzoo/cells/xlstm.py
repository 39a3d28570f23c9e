"""The two cells of xLSTM."""

from enum import StrEnum
from functools import partial
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import linear, logsigmoid, pad, silu

from lmzoo.base.config import config
from lmzoo.cells.base import (
    CELLS,
    Cell,
    Expand,
    Heads,
    Inputs,
    OutputAndState,
    OwnDraw,
    Parts,
    State,
    Weights,
)
from lmzoo.cells.cuts import ZeroWeights, cuts_of, removed
from lmzoo.cells.draws import WINDOW, by_columns, normal, ones, tap_bias
from lmzoo.cells.matrix import MatrixCell, WeightTable, head_norm, head_size
from lmzoo.functional.convolution import convolve
from lmzoo.functional.linear_recurrence import linear_recurrence
from lmzoo.functional.matrix_state import Update
from lmzoo.functional.sequence import delayed
from lmzoo.types import Shape

MLSTMCut = StrEnum(
    "MLSTMCut", "INPUT_GATE FORGET_GATE EXPONENTIAL NORMALISER OUTPUT_GATE NORM CONVOLUTION SKIP"
)


def canonical_mlstm(cuts: frozenset[MLSTMCut]) -> frozenset[MLSTMCut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    if MLSTMCut.INPUT_GATE in cuts:
        return cuts - {MLSTMCut.EXPONENTIAL}
    if MLSTMCut.NORMALISER in cuts:
        return cuts | {MLSTMCut.EXPONENTIAL}
    return cuts


MLSTM_WEIGHTS = {
    MLSTMCut.INPUT_GATE: {"i", "bias_i"},
    MLSTMCut.FORGET_GATE: {"f", "bias_f"},
    MLSTMCut.OUTPUT_GATE: {"o"},
    MLSTMCut.NORM: {"norm"},
    MLSTMCut.CONVOLUTION: {"conv", "bias_conv"},
    MLSTMCut.SKIP: {"skip"},
}
"""The weights that go with a cut."""


@CELLS("mlstm")
class MLSTM(MatrixCell):
    """An LSTM with a matrix as memory and gates that do not read the state.

        u_t = W_u x_t                 a_t = SiLU(conv(u_t))                    `expand` · E channels
        q_t = W_q a_t                 k_t = W_k a_t / √K                       v_t = W_v u_t
        i_t = exp(w_i z_t + b_i)      f_t = σ(w_f z_t + b_f)               z_t = (q_t, √K k_t, v_t)
        C_t = f_t C_{t-1} + i_t k_t v_tᵀ            memory, (K, V) for each head
        n_t = f_t n_{t-1} + i_t k_t                 normaliser, (K)
        y_t = W_y ( ( N( C_tᵀ q_t / max(|n_t · q_t|, 1) ) + s ⊙ a_t ) ⊙ SiLU(W_o x_t) )

    i and f are one number per head; W_q, W_k and W_v are block-diagonal with blocks of 4 (of 2 or 1
    where 4 does not divide the channels); conv is causal, depthwise, 4 tokens long. The code
    multiplies C, n and 1 by e^{−m} with m_t = max(m_{t-1} + log f_t, log i_t), so that nothing
    overflows. y does not depend on m, so m needs no gradient. b_f starts at 3 .. 6 over the heads,
    b_i at N(0, 0.1²), w_i and w_f at 0, s at 1, W_y at N(0, 4/E), the other matrices at N(0,
    2/(5E)). Cuts:

        0  input_gate   i_t → 1                                   4  output_gate   SiLU(W_o x_t) → 1
        1  forget_gate  f_t → 1                                   5  norm          N(u) → u
        2  exponential  exp(w_i z_t + b_i) → σ(w_i z_t + b_i)     6  convolution   conv(u) → u
        3  normaliser   / max(|n_t · q_t|, 1) → 1; exp(w_i z_t + b_i) → σ(w_i z_t + b_i)
        7  skip         s ⊙ a_t

    Exponential gates without a normaliser are unbounded, so normaliser (3) also cuts exponential
    (2). Without input_gate and forget_gate (0, 1) it is linear attention with a normaliser.

    Differences from the code of NX-AI/xlstm (`blocks/mlstm`, 032a6fb):

        there                              here                       why
        4 heads                            2 heads                    widths of 32 to 256
        max(|n · q|, 1) + 10⁻⁶             without 10⁻⁶               N removes it, up to its ε
        W_y at N(0, (2/blocks)²/E)         N(0, 4/E)                  the same in every layer
        u has a multiple of 64 channels    a multiple of the heads    equal at E = 32 k
        scales of N are 1 + w, w at 0      w, at 1                    decay does not act on it here

    Beck et al. 2024 (arXiv:2405.04517); N is LayerNorm per head, without bias.
    """

    convolved = ("u",)

    @config
    class Config:
        """Number of heads, channels, and the cuts, by name or number."""

        heads: Heads = 2
        expand: Expand = 2
        """Channels of u per column of the input."""
        cuts: Annotated[frozenset[MLSTMCut], cuts_of(MLSTMCut, canonical_mlstm)] = frozenset()

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        n = config.heads
        cuts = config.cuts
        size = head_size(config.expand * width, n)
        self._normalised = MLSTMCut.NORMALISER not in cuts
        bounded = cuts & {MLSTMCut.INPUT_GATE, MLSTMCut.EXPONENTIAL}
        self._exponential = not bounded
        # The normaliser n is one more column of C: what writes v also writes a 1.
        self.shape_state(n, size, size + self._normalised)
        inner = n * size
        # Blocks of 4, as published, where the width allows it.
        block = 4
        while inner % block:
            block //= 2
        blocks = (inner // block, block, block)
        small = normal((0.4 / width) ** 0.5)
        residual = normal(2 / width**0.5)
        weights: WeightTable = {
            "u": inner,
            "o": inner,
            "conv": ((inner, WINDOW), by_columns),
            "bias_i": (n, normal(0.1)),
            "bias_f": (n, _open_gates),
            "norm": (inner, ones),
            "out": ((width, inner), residual),
            "q": (blocks, small),
            "k": (blocks, small),
            "v": (blocks, small),
            "i": ((n, 3 * inner), torch.zeros),
            "f": ((n, 3 * inner), torch.zeros),
            "bias_conv": (inner, tap_bias),
            "skip": (inner, ones),
        }
        cut = removed(MLSTM_WEIGHTS, cuts)
        self.set_weights(weights, cut, u=small, o=small)

    def initial_memory(self, start: Tensor) -> State:
        window = super().initial_memory(start)
        if not self._exponential:
            return window
        m = start.new_zeros(len(start), self.heads)
        return window + (m,)

    def prepare(self, projected: Tensor, memory: State) -> tuple[Parts, State]:
        if not self._exponential:
            return self._named(projected, memory)
        z, window = self._named(projected, memory[:-1])
        m = memory[-1]
        log_i, log_f = self._log_gates(z)
        # m only keeps exponentials in range and cancels: it needs no gradient.
        with torch.no_grad():
            # m_t = L_t + max(m_0, max_{s≤t} log i_s − L_s), with L_t = Σ_{s≤t} log f_s
            total = log_f.cumsum(1)
            highest = (log_i - total).cummax(1).values
            highest = torch.maximum(highest, m[:, None])
            later = total + highest
        earlier = delayed(later, m)
        z["m"] = later
        z["m before"] = earlier
        last = later[:, -1]
        return z, window + (last,)

    def _named(self, projected: Tensor, window: State) -> tuple[Parts, State]:
        """Return the named projections of T steps, and the next window."""
        z, after = super().prepare(projected, window)
        w = self.w
        u = projected[..., : self._columns["u"]]
        for name, inputs in (("q", z["u"]), ("k", z["u"]), ("v", u)):
            # q and k read the convolution, v the tokens themselves.
            blocks = getattr(w, name)
            inputs = inputs.unflatten(-1, blocks.shape[:2])
            mixed = torch.einsum("...nd,ned->...ne", inputs, blocks)
            z[name] = mixed.flatten(-2)
        qkv = [z["q"], z["k"], z["v"]]
        read = torch.cat(qkv, -1)
        for name in ("i", "f"):
            weight = getattr(w, name)
            if weight is not None:
                z[name] = linear(read, weight)
        return z, after

    def update(self, z: Parts) -> Update:
        q = self.split_heads(z["q"])
        k = self.split_heads(z["k"])
        v = self.split_heads(z["v"])
        log_i, log_f = self._log_gates(z)
        if "m" in z:
            log_i = log_i - z["m"]
            # C and n are stored divided by e^m: a step changes that factor, too.
            log_f = log_f + z["m before"] - z["m"]
        if self._normalised:
            # The normaliser is one more column of C, whose value is always 1.
            v = pad(v, (0, 1), value=1.0)
        i = log_i.exp()[..., None]
        key = i * k / self.keys**0.5
        return Update(q, key, v, log_f[..., None])

    def output(self, o: Tensor, z: Parts, update: Update) -> Tensor:
        if self._normalised:
            # e^(−m) in place of 1: C and n are stored divided by e^m.
            floor = torch.ones_like(o[..., 0])
            if "m" in z:
                # e^80 is still finite in float32.
                floor = (-z["m"]).clamp(-80, 80).exp()
            size = o[..., -1].abs()
            normaliser = torch.maximum(size, floor)
            o = o[..., :-1] / normaliser[..., None]
        w = self.w
        h = head_norm(o.flatten(-2), self.heads, self.w.norm)
        if w.skip is not None:
            h = h + w.skip * z["u"]
        if "o" in z:
            h = h * silu(z["o"])
        return linear(h, w.out)

    def _log_gates(self, z: Parts) -> tuple[Tensor, Tensor]:
        """Return log i and log f, one number per head."""
        zero = torch.zeros_like(z["q"][..., : self.heads])
        log_i = zero
        log_f = zero
        if "i" in z:
            log_i = z["i"] + self.w.bias_i
            # Without the exponential gate, i is a sigmoid as f is.
            if not self._exponential:
                log_i = logsigmoid(log_i)
        if "f" in z:
            log_f = logsigmoid(z["f"] + self.w.bias_f)
        return log_i, log_f


SLSTMCut = StrEnum(
    "SLSTMCut",
    "INPUT_TO_WRITE INPUT_TO_FORGET INPUT_TO_OUTPUT FORGET_GATE STATE_TO_WRITE "
    "STATE_TO_FORGET STATE_TO_OUTPUT STATE_TO_CANDIDATE EXPONENTIAL NORMALISER OUTPUT_GATE "
    "CONVOLUTION NORM",
)
GATES = "ifoz"
INPUT: dict[str, SLSTMCut] = {
    "xi": SLSTMCut.INPUT_TO_WRITE,
    "xf": SLSTMCut.INPUT_TO_FORGET,
    "xo": SLSTMCut.INPUT_TO_OUTPUT,
}
MIXING: dict[str, SLSTMCut] = {
    "hi": SLSTMCut.STATE_TO_WRITE,
    "hf": SLSTMCut.STATE_TO_FORGET,
    "ho": SLSTMCut.STATE_TO_OUTPUT,
    "hz": SLSTMCut.STATE_TO_CANDIDATE,
}
WHOLE = {SLSTMCut.FORGET_GATE: "f", SLSTMCut.OUTPUT_GATE: "o"}
"""Cuts that remove a gate with its weights."""
MAX_LOG = 80.0
"""Largest m whose exponential is used; there tanh is ±1."""


def canonical_slstm(cuts: frozenset[SLSTMCut]) -> frozenset[SLSTMCut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    for gate, name in WHOLE.items():
        if gate in cuts:
            cuts = cuts - {INPUT[f"x{name}"], MIXING[f"h{name}"]}
    constant = {SLSTMCut.INPUT_TO_WRITE, SLSTMCut.STATE_TO_WRITE}
    if constant <= cuts and SLSTMCut.NORMALISER not in cuts:  # a constant i cancels in c / n
        cuts = cuts - {SLSTMCut.EXPONENTIAL}
    if _reads_no_window(cuts):
        return cuts - {SLSTMCut.CONVOLUTION}
    return cuts


def _reads_no_window(cuts: frozenset[SLSTMCut]) -> bool:
    """Whether neither i nor f reads u."""
    if SLSTMCut.INPUT_TO_WRITE not in cuts:
        return False
    return bool(cuts & {SLSTMCut.INPUT_TO_FORGET, SLSTMCut.FORGET_GATE})


@CELLS("slstm")
class SLSTM(Cell):
    """An LSTM whose memory is a weighted average; its state is (h, c, n, m).

        u_t = SiLU(conv(x_t))                      causal, depthwise, 4 tokens
        z̃ = x_t W_z + h_{t-1} R_z + b_z            ĩ = u_t W_i + h_{t-1} R_i
        f̃ = u_t W_f + h_{t-1} R_f + b_f            õ = x_t W_o + h_{t-1} R_o + b_o
        i = exp(ĩ)                                 f = σ(f̃)
        c_t = f ⊙ c_{t-1} + i ⊙ tanh(z̃)            memory
        n_t = f ⊙ n_{t-1} + i                      normaliser
        h_t = σ(õ) ⊙ c_t / n_t                     y_t = N(h_t)       output

    W and R are block-diagonal, one block per head; the number of heads is the largest one up to
    `heads` that divides H into heads of two units or more. The code stores c and n divided by
    exp(m_t), with m_t = max(log f + m_{t-1}, ĩ), so that no exponential exceeds 1; h_t is the same
    for every m. The bias of ĩ would cancel in c_t / n_t, so only cells with cut 8 or 9 have it. c_0
    and n_0 are 0 and m_1 = ĩ, so n_1 = 1. The initial state is h_0, 0 for the start of a model. A
    cut replaces a term:

        0  input_to_write     u_t W_i         6  state_to_output      h_{t-1} R_o
        1  input_to_forget    u_t W_f         7  state_to_candidate   h_{t-1} R_z
        2  input_to_output    x_t W_o         8  exponential          exp(ĩ) → σ(ĩ + b_i)
        3  forget_gate        f → 1           9  normaliser           c_t / n_t → tanh(c_t)
        4  state_to_write     h_{t-1} R_i    10  output_gate          σ(õ) → 1
        5  state_to_forget    h_{t-1} R_f    11  convolution          SiLU(conv(x_t)) → x_t
        12  norm              N(u) → u

    Cuts 4 to 7 are the authors' memory mixing; without it the scan is parallel. Without exponential
    (8) and normaliser (9) the cell is the LSTM. W starts with variance 2/(5H), R at 0, the bias of
    f of unit j of d in a head at 5 − 12 (j / (d − 1))^0.3, other biases at 0.

    Differences from the code of NX-AI/xlstm (`blocks/slstm`, 032a6fb):

        there                              here                       why
        b_i                                only with cut 8 or 9       it has no effect on h
        exponent 0.3 to 1.6 over blocks    0.3                        the same in every layer
        scales of N are 1 + w, w at 0      w, at 1                    decay does not act on it here

    Beck et al. 2024 (arXiv:2405.04517); N is LayerNorm per head, without bias.
    """

    zero_start = 1.0

    @config
    class Config(ZeroWeights):
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        zero_weights = frozenset((INPUT | MIXING).values())
        cuts: Annotated[frozenset[SLSTMCut], cuts_of(SLSTMCut, canonical_slstm)] = frozenset()
        heads: int = Field(4, ge=1)

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        h = width
        # A head of one unit has the norm 0: at least two units a head.
        most = min(h // 2, config.heads)
        self.heads = max(1, most)
        # Blocks of one size: the largest number of heads that divides H.
        while h % self.heads:
            self.heads -= 1
        size = h // self.heads
        square = (self.heads, size, size)
        small = partial(_small_normal, width=h)
        shapes: dict[str, Shape] = {}
        own: dict[str, OwnDraw] = {}
        kinds = (
            ("x", square, small),
            ("h", square, torch.zeros),
            ("b", (h,), torch.zeros),
        )
        # All gates of one kind after another: the order of the draws.
        for kind, shape, draw in kinds:
            for gate in GATES:
                shapes[kind + gate] = shape
                own[kind + gate] = draw
        own["bf"] = partial(_power_law, heads=self.heads)
        gone = {WHOLE[cut] for cut in WHOLE.keys() & config.cuts}
        self.names = [gate for gate in GATES if gate not in gone]
        cut = {name for name in shapes if name[1] not in self.names}
        # With an exponential gate and the normaliser, a constant factor of i cancels.
        if not config.cuts & {SLSTMCut.EXPONENTIAL, SLSTMCut.NORMALISER}:
            cut.add("bi")
        for name, path in (INPUT | MIXING).items():
            if path in config.cuts:
                cut.add(name)
        biases = {f"b{gate}" for gate in GATES}
        shapes |= {
            "conv": (h, WINDOW),
            "bias_conv": (h,),
            "norm": (h,),
        }
        own |= {
            "conv": by_columns,
            "bias_conv": tap_bias,
            "norm": ones,
        }
        self.convolves = True
        if SLSTMCut.CONVOLUTION in self.cuts or _reads_no_window(self.cuts):
            self.convolves = False
            cut |= {"conv", "bias_conv"}
        if SLSTMCut.NORM in config.cuts:
            cut |= {"norm"}
        self.w = Weights(shapes, cut, fan_in=h, biases=biases, own=own)

    @property
    def state_size(self) -> int:
        vectors = 4  # h, c, n, m
        if self.convolves:
            vectors += WINDOW - 1
        return vectors * self.width

    def initial_state(self, start: Tensor) -> State:
        h = self.shift_start(start)
        zero = torch.zeros_like(start)
        # m_0 is finite, because ∞ − ∞ is no number, and so small that exp(m_0 − m_1) is 0.
        m = torch.full_like(start, -1e30)
        if not self.convolves:
            return h, zero, zero, m
        window = start.new_zeros(len(start), WINDOW - 1, self.width)
        return h, zero, zero, m, window

    def project(self, x: Tensor) -> Tensor:
        if self.convolves:
            return x
        return self._logits(x, x)

    def _logits(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the parts of the logits that do not depend on the state."""
        parts = []
        for gate in self.names:
            inputs = x
            if gate in "if":
                inputs = u
            weight = getattr(self.w, f"x{gate}")
            if weight is None:
                part = torch.zeros_like(inputs)
            else:
                part = self._mix(inputs, weight)
            bias = getattr(self.w, f"b{gate}")
            if bias is not None:
                part = part + bias
            parts.append(part)
        return torch.cat(parts, -1)

    def _mix(
        self,
        u: Float[Tensor, "*N H"],
        weight: Tensor,
    ) -> Float[Tensor, "*N H"]:
        by_head = u.unflatten(-1, (self.heads, -1))
        mixed = torch.einsum("...nd,nde->...ne", by_head, weight)
        return mixed.flatten(-2)

    def _enter(self, projected: Float[Tensor, "B T G"], window: State) -> OutputAndState:
        """Return the logits of T steps without the state's part, and the next window."""
        if not window:
            return projected, ()
        w = self.w
        mixed, after = convolve(projected, window[0], w.conv, w.bias_conv)
        logits = self._logits(projected, silu(mixed))
        return logits, (after,)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        h, c, n, m = state[:4]
        sequence = projected[:, None]
        logits, after = self._enter(sequence, state[4:])
        log_i, log_f, o, z = self._parts(logits[:, 0], h)
        log_f = log_f + m
        m = torch.maximum(log_f, log_i).detach()  # h does not depend on m
        f = torch.exp(log_f - m)
        i = torch.exp(log_i - m)
        c = f * c + i * z
        n = f * n + i
        h = self._output(c, n, m, o)
        y = head_norm(h, self.heads, self.w.norm)
        return y, (h, c, n, m) + after

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState | None:
        for gate in GATES:
            if getattr(self.w, f"h{gate}") is not None:
                return None  # memory mixing needs h of the step before
        _, c, n, m = state[:4]
        projected = self.project_inputs(x)
        logits, after = self._enter(projected, state[4:])
        log_i, log_f, o, z = self._parts(logits, None)
        total = log_f.detach().cumsum(-2)
        first = m[..., None, :].detach()
        written = log_i.detach() - total
        highest = written.cummax(-2).values
        m = total + torch.maximum(highest, first)
        before = torch.cat([first, m[..., :-1, :]], -2)
        f = torch.exp(log_f + before - m)
        i = torch.exp(log_i - m)
        c = linear_recurrence(f, i * z, c)
        n = linear_recurrence(f, i, n)
        h = self._output(c, n, m, o)
        last = tuple(part[:, -1] for part in (h, c, n, m))
        y = head_norm(h, self.heads, self.w.norm)
        return y, last + after

    def _parts(
        self, projected: Tensor, h: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Return log i, log f, σ(õ) and tanh(z̃)."""
        parts = projected.split(self.width, -1)
        logits = dict(zip(self.names, parts, strict=True))
        for gate in self.names:
            weight = getattr(self.w, f"h{gate}")
            if weight is not None and h is not None:
                fed = self._mix(h, weight)
                logits[gate] = logits[gate] + fed
        if SLSTMCut.EXPONENTIAL in self.cuts:
            log_i = logsigmoid(logits["i"])
        else:
            log_i = logits["i"]
        if "f" in logits:
            log_f = logsigmoid(logits["f"])
        else:
            log_f = torch.zeros_like(log_i)
        o = None
        if "o" in logits:
            o = logits["o"].sigmoid()
        return log_i, log_f, o, logits["z"].tanh()

    def _output(
        self,
        c: Tensor,
        n: Tensor,
        m: Tensor,
        o: Tensor | None,
    ) -> Tensor:
        if SLSTMCut.NORMALISER in self.cuts:
            scale = m.clamp_max(MAX_LOG).exp()
            h = torch.tanh(c * scale)
        else:
            h = c / n
        if o is None:
            return h
        return o * h


def _open_gates(shape: Shape) -> Tensor:
    """Return biases of forget gates, from 3 to 6 over the heads."""
    return torch.linspace(3, 6, shape[0])


def _small_normal(shape: Shape, width: int) -> Tensor:
    """Return a draw from N(0, 2 / 5H)."""
    unit = torch.randn(shape)
    return unit / width**0.5 * 0.4**0.5


def _power_law(shape: Shape, heads: int) -> Tensor:
    unit = torch.linspace(0, 1, shape[0] // heads)
    bias = 5 - 12 * unit**0.3
    return bias.repeat(heads)
