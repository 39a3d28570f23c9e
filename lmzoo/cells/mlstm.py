r"""The mLSTM of xLSTM: an LSTM with exponential gates and a matrix as memory.

    u_t = W_u x_t                 a_t = SiLU(conv(u_t))                    `expand` · E channels
    q_t = W_q a_t                 k_t = W_k a_t / √K                       v_t = W_v u_t
    i_t = exp(w_i z_t + b_i)      f_t = σ(w_f z_t + b_f)                   z_t = (q_t, √K k_t, v_t)
    C_t = f_t C_{t-1} + i_t k_t v_tᵀ            memory, (K, V) for each head
    n_t = f_t n_{t-1} + i_t k_t                 normaliser, (K)
    y_t = W_y ( ( N( C_tᵀ q_t / max(|n_t · q_t|, 1) ) + s ⊙ a_t ) ⊙ SiLU(W_o x_t) )

i and f are one number per head; W_q, W_k and W_v are block-diagonal with blocks of 4 (of 2 or 1
where 4 does not divide the channels); conv is causal, depthwise, 4 tokens long. The code multiplies
C, n and 1 by e^{−m} with m_t = max(m_{t-1} + log f_t, log i_t), so that nothing overflows. y does
not depend on m, so m needs no gradient. b_f starts at 3 .. 6 over the heads, b_i at N(0, 0.1²), w_i
and w_f at 0, s at 1, W_y at N(0, 4/E), the other matrices at N(0, 2/(5E)). Cuts:

    0  input_gate     i_t → 1                                   4  output_gate   SiLU(W_o x_t) → 1
    1  forget_gate    f_t → 1                                   5  norm          N(u) → u
    2  exponential    exp(w_i z_t + b_i) → σ(w_i z_t + b_i)     6  convolution   conv(u) → u
    3  normaliser     / max(|n_t · q_t|, 1) → 1; exp(w_i z_t + b_i) → σ(w_i z_t + b_i)
    7  skip           s ⊙ a_t

Exponential gates without a normaliser are unbounded, so normaliser (3) also cuts exponential (2).
Without input_gate and forget_gate (0, 1) it is linear attention with a normaliser.

Differences from the code of NX-AI/xlstm (`blocks/mlstm`, 032a6fb):

    there                              here                        why
    4 heads                            2 heads                     widths of 32 to 256
    max(|n · q|, 1) + 10⁻⁶             without 10⁻⁶                N removes it, up to its ε
    W_y at N(0, (2/blocks)²/E)         N(0, 4/E)                   a cell does not know its depth

Beck et al. 2024 (arXiv:2405.04517); N is LayerNorm per head, without bias.
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice
from lmzoo.cells.base import CELLS, OwnDraw, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, MatrixCell, head_size, normal, ones, tap_bias, taps
from lmzoo.functional.matrix_state import Update

Cut = StrEnum(
    "Cut", "INPUT_GATE FORGET_GATE EXPONENTIAL NORMALISER OUTPUT_GATE NORM CONVOLUTION SKIP"
)


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    if Cut.INPUT_GATE in cuts:
        return cuts - {Cut.EXPONENTIAL}
    return cuts | {Cut.EXPONENTIAL} if Cut.NORMALISER in cuts else cuts


@CELLS("mlstm")
class MLSTM(MatrixCell):
    """An LSTM with a matrix as memory and gates that do not read the state."""

    convolved = ("u",)

    @config
    class Config:
        """Number of heads, channels, and the cuts, by name or number."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
        expand: Annotated[int, Choice((1, 2))] = Field(2, ge=1)
        """Channels of u per column of the input."""
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        n, cuts = config.heads, config.cuts
        size = head_size(config.expand * width, n)
        self._normalised = Cut.NORMALISER not in cuts
        self._exponential = not cuts & {Cut.INPUT_GATE, Cut.EXPONENTIAL}
        self.shape_state(n, size, size + self._normalised)  # n is one more column of C
        inner = n * size
        block = next(size for size in (4, 2, 1) if inner % size == 0)
        blocks = (inner // block, block, block)
        columns = {"u": inner, "o": inner}
        shapes = {
            "u": (inner, width), "o": (inner, width), "conv": (inner, WINDOW),
            "bias_i": (n,), "bias_f": (n,), "norm": (inner,), "out": (width, inner),
            "q": blocks, "k": blocks, "v": blocks, "i": (n, 3 * inner), "f": (n, 3 * inner),
            "bias_conv": (inner,), "skip": (inner,),
        }  # fmt: skip
        own: dict[str, OwnDraw] = {
            "conv": taps, "bias_i": normal(0.1), "bias_f": _three_to_six, "norm": ones,
            "out": normal(2 / width**0.5), "i": torch.zeros, "f": torch.zeros,
            "bias_conv": tap_bias, "skip": ones,
        }  # fmt: skip
        own |= dict.fromkeys(("u", "o", "q", "k", "v"), normal((0.4 / width) ** 0.5))
        weights = {
            Cut.INPUT_GATE: {"i", "bias_i"}, Cut.FORGET_GATE: {"f", "bias_f"},
            Cut.OUTPUT_GATE: {"o"}, Cut.NORM: {"norm"}, Cut.CONVOLUTION: {"conv", "bias_conv"},
            Cut.SKIP: {"skip"},
        }  # fmt: skip
        cut = set[str]().union(*(weights.get(path, set()) for path in cuts))
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, set(columns) - cut)

    def initial_memory(self, start: Tensor) -> State:
        window = super().initial_memory(start)
        return (*window, start.new_zeros(len(start), self.heads)) if self._exponential else window

    def prepare(self, projected: Tensor, memory: State) -> tuple[dict[str, Tensor], State]:
        if not self._exponential:
            return self._named(projected, memory)
        *window, m = memory
        z, window = self._named(projected, tuple(window))
        log_i, log_f = self._log_gates(z)
        with torch.no_grad():
            # m_t = L_t + max(m_0, max_{s≤t} log i_s − L_s), with L_t = Σ_{s≤t} log f_s
            total = log_f.cumsum(1)
            highest = (log_i - total).cummax(1).values
            later = total + torch.maximum(highest, m[:, None])
        z = {**z, "m": later, "m before": torch.cat([m[:, None], later[:, :-1]], dim=1)}
        return z, (*window, later[:, -1])

    def _named(self, projected: Tensor, window: State) -> tuple[dict[str, Tensor], State]:
        """Return the named projections of T steps, and the next window."""
        z, after = super().prepare(projected, window)
        w, u = self.w, projected[..., : self._columns["u"]]
        for name, inputs in (("q", z["u"]), ("k", z["u"]), ("v", u)):
            blocks = getattr(w, name)
            inputs = inputs.unflatten(-1, blocks.shape[:2])
            z[name] = torch.einsum("...nd,ned->...ne", inputs, blocks).flatten(-2)
        read = torch.cat([z["q"], z["k"], z["v"]], dim=-1)
        gates = {name: getattr(w, name) for name in ("i", "f") if getattr(w, name) is not None}
        return z | {name: nn.functional.linear(read, w) for name, w in gates.items()}, after

    def update(self, z: dict[str, Tensor]) -> Update:
        q, k, v = (self.split_heads(z[name]) for name in ("q", "k", "v"))
        log_i, log_f = self._log_gates(z)
        if "m" in z:
            log_i, log_f = log_i - z["m"], log_f + z["m before"] - z["m"]
        if self._normalised:
            v = nn.functional.pad(v, (0, 1), value=1.0)
        return Update(q, log_i.exp()[..., None] * k / self.keys**0.5, v, log_f[..., None])

    def output(self, o: Tensor, z: dict[str, Tensor], update: Update) -> Tensor:
        if self._normalised:
            floor = (-z["m"]).clamp(-80, 80).exp() if "m" in z else torch.ones_like(o[..., 0])
            o = o[..., :-1] / torch.maximum(o[..., -1].abs(), floor)[..., None]
        w, h = self.w, o.flatten(-2)
        if w.norm is not None:
            flat = h.reshape(-1, h.shape[-1])
            h = torch.group_norm(flat, self.heads, w.norm, eps=1e-5).view(h.shape)
        h = h if w.skip is None else h + w.skip * z["u"]
        return nn.functional.linear(h * nn.functional.silu(z["o"]) if "o" in z else h, w.out)

    def _log_gates(self, z: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return log i and log f, one number per head."""
        zero = z["q"].new_zeros((*z["q"].shape[:-1], self.heads))
        log_sigmoid = nn.functional.logsigmoid
        log_i = z["i"] + self.w.bias_i if "i" in z else zero
        if "i" in z and not self._exponential:
            log_i = log_sigmoid(log_i)
        return log_i, log_sigmoid(z["f"] + self.w.bias_f) if "f" in z else zero


def _three_to_six(shape: tuple[int, ...]) -> Tensor:
    return torch.linspace(3, 6, shape[0])
