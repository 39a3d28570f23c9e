r"""The mLSTM of xLSTM: an LSTM with exponential gates and a matrix as memory.

    q_t = SiLU(conv(W_q x_t))     k_t = SiLU(conv(W_k x_t)) / √K      v_t = W_v x_t
    i_t = exp(w_i x_t + b_i)      f_t = σ(w_f x_t + b_f)              o_t = σ(W_o x_t)
    C_t = f_t C_{t-1} + i_t k_t v_tᵀ            memory, (K, V) for each head
    n_t = f_t n_{t-1} + i_t k_t                 normaliser, (K)
    y_t = W_y ( N( C_tᵀ q_t / max(|n_t · q_t|, 1) ) ⊙ o_t )

i and f are one number per head. The code multiplies C, n and 1 by e^{−m} with
m_t = max(m_{t-1} + log f_t, log i_t), so that nothing overflows. y does not depend on m, so m needs
no gradient. b_f starts at 3 .. 6 over the heads, b_i at N(0, 0.1²). Cuts:

    0  input_gate     i_t → 1                                       4  output_gate   o_t → 1
    1  forget_gate    f_t → 1                                       5  norm          N(u) → u
    2  exponential    exp(w_i x_t + b_i) → σ(w_i x_t + b_i)         6  convolution   conv(u) → u
    3  normaliser     / max(|n_t · q_t|, 1) → 1; exp(w_i x_t + b_i) → σ(w_i x_t + b_i)

Exponential gates without a normaliser are unbounded, so normaliser (3) also cuts exponential (2).
Without input_gate and forget_gate (0, 1) it is linear attention with a normaliser.

Beck et al. 2024 (arXiv:2405.04517); N is RMSNorm per head.
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.matrix import WINDOW, MatrixCell, head_size, ones, taps
from lmzoo.config import config
from lmzoo.functional.matrix_state import Update
from lmzoo.search_space import Choice


class Cut(StrEnum):
    """A part of the cell that can be removed; its number is its position."""

    INPUT_GATE = "input_gate"
    FORGET_GATE = "forget_gate"
    EXPONENTIAL = "exponential"
    NORMALISER = "normaliser"
    OUTPUT_GATE = "output_gate"
    NORM = "norm"
    CONVOLUTION = "convolution"


def canonical(cuts: frozenset[Cut]) -> frozenset[Cut]:
    """Return the one set of cuts that stands for all sets with the same function."""
    if Cut.INPUT_GATE in cuts:
        return cuts - {Cut.EXPONENTIAL}
    return cuts | {Cut.EXPONENTIAL} if Cut.NORMALISER in cuts else cuts


@CELLS("mlstm")
class MLSTM(MatrixCell):
    """An LSTM with a matrix as memory and gates that do not read the state."""

    convolved = ("q", "k")

    @config
    class Config:
        """Number of heads and the cuts, by name or number."""

        heads: Annotated[int, Choice((1, 2, 4, 8))] = Field(2, ge=1)
        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        size, n, cuts = head_size(width, config.heads), config.heads, config.cuts
        self._normalised = Cut.NORMALISER not in cuts
        self._exponential = not cuts & {Cut.INPUT_GATE, Cut.EXPONENTIAL}
        self.shape_state(n, size, size + self._normalised)  # n is one more column of C
        inner = n * size
        columns = {"q": inner, "k": inner, "v": inner, "o": inner, "i": n, "f": n}
        shapes = {name: (rows, width) for name, rows in columns.items()}
        shapes |= {"conv": (2 * inner, WINDOW), "bias_i": (n,), "bias_f": (n,)}
        shapes |= {"norm": (inner,), "out": (width, inner)}
        weights = {
            Cut.INPUT_GATE: {"i", "bias_i"}, Cut.FORGET_GATE: {"f", "bias_f"},
            Cut.OUTPUT_GATE: {"o"}, Cut.NORM: {"norm"}, Cut.CONVOLUTION: {"conv"},
        }  # fmt: skip
        cut = set[str]().union(*(weights.get(path, set()) for path in cuts))
        own = {"norm": ones, "conv": taps, "bias_i": _small, "bias_f": _three_to_six}
        self.w = Weights(shapes, cut, fan_in=width, own=own)
        self.set_projections(columns, set(columns) - cut)

    def initial_memory(self, start: Tensor) -> State:
        window = super().initial_memory(start)
        return (*window, start.new_zeros(len(start), self.heads)) if self._exponential else window

    def prepare(self, projected: Tensor, memory: State) -> tuple[dict[str, Tensor], State]:
        if not self._exponential:
            return super().prepare(projected, memory)
        *window, m = memory
        z, window = super().prepare(projected, tuple(window))
        log_i, log_f = self._log_gates(z)
        with torch.no_grad():
            # m_t = L_t + max(m_0, max_{s≤t} log i_s − L_s), with L_t = Σ_{s≤t} log f_s
            total = log_f.cumsum(1)
            highest = (log_i - total).cummax(1).values
            later = total + torch.maximum(highest, m[:, None])
        z = {**z, "m": later, "m before": torch.cat([m[:, None], later[:, :-1]], dim=1)}
        return z, (*window, later[:, -1])

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
        w = self.w
        if w.norm is not None:
            o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5)
            o = o * w.norm.view(self.heads, -1)
        o = o.flatten(-2)
        return nn.functional.linear(o * torch.sigmoid(z["o"]) if "o" in z else o, w.out)

    def _log_gates(self, z: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return log i and log f, one number per head."""
        zero = z["q"].new_zeros((*z["q"].shape[:-1], self.heads))
        log_sigmoid = nn.functional.logsigmoid
        log_i = z["i"] + self.w.bias_i if "i" in z else zero
        if "i" in z and not self._exponential:
            log_i = log_sigmoid(log_i)
        return log_i, log_sigmoid(z["f"] + self.w.bias_f) if "f" in z else zero


def _small(shape: tuple[int, ...]) -> Tensor:
    return 0.1 * torch.randn(shape)


def _three_to_six(shape: tuple[int, ...]) -> Tensor:
    return torch.linspace(3, 6, shape[0])
