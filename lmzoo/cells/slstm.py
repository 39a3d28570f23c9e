r"""The sLSTM of xLSTM: exponential gates, a normaliser state, and eleven cuts.

    z̃ = x_t W_z + h_{t-1} R_z + b_z            ĩ = x_t W_i + h_{t-1} R_i
    f̃ = x_t W_f + h_{t-1} R_f + b_f            õ = x_t W_o + h_{t-1} R_o + b_o
    i = exp(ĩ)                                 f = σ(f̃)
    c_t = f ⊙ c_{t-1} + i ⊙ tanh(z̃)            memory
    n_t = f ⊙ n_{t-1} + i                      normaliser
    h_t = σ(õ) ⊙ c_t / n_t

The code stores c and n divided by exp(m_t), with m_t = max(log f + m_{t-1}, ĩ), so that no
exponential exceeds 1; h_t is the same for every m. The bias of ĩ would cancel in c_t / n_t, so only
cells with cut 8 or 9 have it. c_0 and n_0 are 0 and m_1 = ĩ, so n_1 = 1. The initial state is h_0.
A cut replaces a term:

    0  input_to_write     x_t W_i         6  state_to_output      h_{t-1} R_o
    1  input_to_forget    x_t W_f         7  state_to_candidate   h_{t-1} R_z
    2  input_to_output    x_t W_o         8  exponential          exp(ĩ) → σ(ĩ + b_i)
    3  forget_gate        f → 1           9  normaliser           c_t / n_t → tanh(c_t)
    4  state_to_write     h_{t-1} R_i    10  output_gate          σ(õ) → 1
    5  state_to_forget    h_{t-1} R_f

Cuts 4 to 7 are the authors' memory mixing; without it the scan is parallel. Without exponential (8)
and normaliser (9) the cell is the LSTM. W starts with variance 2/(5H), R within ±1/√H, the bias of
unit j's f at 5 − 12 (j / (H − 1))^0.3, other biases at 0, as in the published code with one head.

Beck et al. 2024 (arXiv:2405.04517).
"""

from enum import StrEnum
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights
from lmzoo.cells.cuts import cuts_of
from lmzoo.config import config
from lmzoo.functional.affine import affine
from lmzoo.functional.initialisers import unit_normal
from lmzoo.functional.linear_recurrence import linear_recurrence


class Cut(StrEnum):
    """A term of the recurrence that can be removed; its number is its position."""

    INPUT_TO_WRITE = "input_to_write"
    INPUT_TO_FORGET = "input_to_forget"
    INPUT_TO_OUTPUT = "input_to_output"
    FORGET_GATE = "forget_gate"  # f = 1
    STATE_TO_WRITE = "state_to_write"
    STATE_TO_FORGET = "state_to_forget"
    STATE_TO_OUTPUT = "state_to_output"
    STATE_TO_CANDIDATE = "state_to_candidate"
    EXPONENTIAL = "exponential"  # i = σ(ĩ)
    NORMALISER = "normaliser"  # h = σ(õ) ⊙ tanh(c)
    OUTPUT_GATE = "output_gate"  # h = c / n


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

    @config
    class Config:
        """The cuts, by name or number; cuts that leave the same function give equal configs."""

        cuts: Annotated[frozenset[Cut], cuts_of(Cut, canonical)] = frozenset()

        def uncut(self) -> Any:
            """Return the config without the cuts that zero weights can express."""
            return SLSTM.Config(cuts=self.cuts - set(INPUT.values()) - set(MIXING.values()))

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        self.cuts, h = config.cuts, width
        shapes = {f"x{gate}": (h, h) for gate in GATES} | {f"h{gate}": (h, h) for gate in GATES}
        shapes |= {f"b{gate}": (h,) for gate in GATES}
        self.names = [
            g for g in GATES if not any(WHOLE[cut] == g for cut in WHOLE.keys() & config.cuts)
        ]
        cut = {name for name in shapes if name[1] not in self.names}
        if not config.cuts & {Cut.EXPONENTIAL, Cut.NORMALISER}:
            cut.add("bi")
        cut |= {name for name, path in (INPUT | MIXING).items() if path in config.cuts}
        own = {f"x{gate}": _small_normal for gate in GATES}
        own |= {f"b{gate}": _power_law if gate == "f" else torch.zeros for gate in GATES}
        biases = {f"b{gate}" for gate in GATES}
        self.w = Weights(shapes, cut, fan_in=h, biases=biases, own=own)

    @property
    def state_size(self) -> int:
        return 4 * self.width

    def initial_state(self, start: Tensor) -> State:
        return start, torch.zeros_like(start), torch.zeros_like(start), _least_like(start)

    def project(self, x: Tensor) -> Tensor:
        parts = [affine(x, getattr(self.w, f"x{g}"), getattr(self.w, f"b{g}")) for g in self.names]
        return torch.cat(parts, dim=-1)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return i, divided by exp(m_t); f and o."""
        m = state[3]
        log_i, log_f, o, _ = self._parts(projected, state[0])
        gates = {"i": torch.exp(log_i - torch.maximum(log_f + m, log_i))}
        gates |= {"f": torch.exp(log_f)} if "f" in self.names else {}
        return gates | ({} if o is None else {"o": o})

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        h, c, n, m = state
        log_i, log_f, o, z = self._parts(projected, h)
        log_f = log_f + m
        m = torch.maximum(log_f, log_i).detach()  # h does not depend on m
        f, i = torch.exp(log_f - m), torch.exp(log_i - m)
        c, n = f * c + i * z, f * n + i
        h = self._output(c, n, m, o)
        return h, (h, c, n, m)

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        if any(getattr(self.w, f"h{gate}") is not None for gate in GATES):
            return None
        log_i, log_f, o, z = self._parts(self.project_inputs(x), None)
        total = log_f.detach().cumsum(-2)
        m = total + torch.cummax(log_i.detach() - total, dim=-2).values
        before = torch.cat([m[..., :1, :], m[..., :-1, :]], dim=-2)
        f, i = torch.exp(log_f + before - m), torch.exp(log_i - m)
        zero = torch.zeros_like(start)
        c, n = linear_recurrence(f, i * z, zero), linear_recurrence(f, i, zero)
        return self._output(c, n, m, o)

    def _parts(
        self, projected: Tensor, h: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Return log i, log f, σ(õ) and tanh(z̃)."""
        logits = dict(zip(self.names, projected.split(self.width, dim=-1), strict=True))
        for gate in self.names:
            weight = getattr(self.w, f"h{gate}")
            if weight is not None and h is not None:
                logits[gate] = logits[gate] + h @ weight
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


def _least_like(start: Tensor) -> Tensor:
    """Return m_0: finite, because ∞ − ∞ is no number, and so small that exp(m_0 − m_1) is 0."""
    return torch.full_like(start, -1e30)


def _small_normal(shape: tuple[int, ...]) -> Tensor:
    """Return a draw from N(0, 2 / 5H)."""
    return unit_normal(shape) * 0.4**0.5


def _power_law(shape: tuple[int, ...]) -> Tensor:
    """Return 5 − 12 (j / (H − 1))^0.3 for unit j."""
    return 5 - 12 * torch.linspace(0, 1, shape[0]) ** 0.3
