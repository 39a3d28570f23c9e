"""LSTMs: the LSTM, those with peepholes and of Greff et al., and JANET."""

from enum import StrEnum
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool, model_validator
from torch import Tensor
from torch.nn.functional import linear

from lmzoo.base.config import OptionalName, config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import (
    CELLS,
    Cell,
    Inputs,
    OutputAndState,
    State,
    Weights,
    all_gates,
    gate_shapes,
    keep_gates,
)
from lmzoo.cells.cuts import Cuts
from lmzoo.cells.draws import glorot
from lmzoo.kernels.scan import find_recurrence, scan
from lmzoo.types import Shape

Forget = OptionalName("Forget", "GATE NONE COUPLED")
"""The definition of f: by its own weights, f ≡ 1, or f = 1 − i."""


@CELLS("lstm")
class LSTM(Cell):
    """An LSTM layer; its state is (h, c).

        i, f, o = σ( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
        g       = tanh( x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh )
        c_t     = f ⊙ c_{t-1} + i ⊙ g
        h_t     = o ⊙ tanh(c_t)

    `forget=none` is f ≡ 1, the LSTM of 1997. `forget=coupled` is f = 1 − i, so that c_t
    interpolates between c_{t-1} and g. Neither has weights for f; their other weights start with
    the same values as in the full cell. Gates have the order i, f, g, o, with two biases, as in
    torch.nn.LSTM.

    Hochreiter & Schmidhuber 1997; Gers et al. 2000; Greff et al. 2015 (arXiv:1503.04069). Source:
    S0, S3, S4.
    """

    num_state_vectors = 2

    @config
    class Config:
        """Kind and initial bias of the forget gate."""

        forget: Forget = Forget.GATE
        forget_bias: float | None = Field(None, allow_inf_nan=False)
        """Initial bias of the forget gate (the sum of its two biases); None draws both at random.
        With a large value (1 or more) the cell starts with f ≈ 1."""

        @model_validator(mode="after")
        def _bias_needs_a_gate(self) -> Any:
            if self.forget_bias is not None and self.forget is not Forget.GATE:
                raise UserError(
                    f"forget_bias={self.forget_bias} needs a forget gate, but forget="
                    f"{self.forget}; set forget=gate or remove forget_bias"
                )
            return self

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        adjust = partial(_adjust, forget=config.forget, bias=config.forget_bias)
        shapes = gate_shapes(width)
        self.w = Weights(shapes, fan_in=width, adjust=adjust)

    def project(self, x: Tensor) -> Tensor:
        w = self.w
        bias = w.bias_ih + w.bias_hh
        return linear(x, w.weight_ih, bias)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        h, c = state
        rows = projected + h @ self.w.weight_hh.T
        parts = rows.split(self.width, -1)
        i = parts[0].sigmoid()
        if self.config.forget is Forget.GATE:
            c = parts[1].sigmoid() * c
        elif self.config.forget is Forget.COUPLED:
            c = (1 - i) * c
        # The last two blocks: only cells with a gate f have a block between.
        g = parts[-2]
        o = parts[-1].sigmoid()
        c = c + i * g.tanh()
        h = o * c.tanh()
        return h, (h, c)

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState | None:
        start = torch.cat(state, -1)
        forget = self.config.forget.value
        recurrence = find_recurrence("lstm", start, forget=forget)
        if recurrence is None:
            return None
        projected = recurrence.project(self.project, x)
        # The kernel also takes peepholes and a feedback of gates, which this cell has not.
        weights = [self.w.weight_hh.mT, None, None]
        outputs = scan(recurrence, projected, start, weights)
        return _with_last_state(outputs, state)


def _with_last_state(outputs: list[Tensor], state: State) -> OutputAndState:
    """Return h of all positions, and (h, c) after them, from what a kernel returns."""
    h = outputs[0]
    if not h.shape[1]:
        # A sequence without positions changes no state.
        return h, state
    width = h.shape[-1]
    saved = outputs[-1]
    # A kernel may save more than c, which is its last block.
    c = saved[:, -1, -width:]
    return h, (h[:, -1], c)


def _adjust(
    name: str,
    drawn: Tensor,
    *,
    forget: Forget,
    bias: float | None,
) -> Tensor:
    """Drop the rows of f if there is no forget gate; set its biases if `forget_bias` is given."""
    i, f, g, o = drawn.chunk(4)
    if forget is not Forget.GATE:
        return torch.cat([i, g, o])
    if bias is not None and name.startswith("bias"):
        f = torch.zeros_like(f)
        # Only one of the two biases: they are added.
        if name == "bias_ih":
            f = torch.full_like(f, bias)
    return torch.cat([i, f, g, o])


OPEN = 100.0
"""A bias at which a gate without weights is exactly 1, with a slope of 0."""


Peephole = StrEnum("Peephole", "FULL DIAGONAL")
"""How the gates read the cell state: by matrices, o reads c_{t-1}; or by channel, o reads c_t."""
Cut = StrEnum(
    "Cut", "INPUT_GATE FORGET_GATE OUTPUT_GATE INPUT_ACTIVATION OUTPUT_ACTIVATION COUPLED PEEPHOLES"
)
CONSTANT = {
    "i": Cut.INPUT_GATE,
    "f": Cut.FORGET_GATE,
    "o": Cut.OUTPUT_GATE,
}
"""The cuts that make a gate 1."""


@CELLS("lstm_peephole")
class PeepholeLSTM(Cell):
    """An LSTM layer with peepholes; its state is (h, c), or (h, c, gates).

        i_t = σ( x_t W_i + b_i + u_t R_i + c_{t-1} P_i )
        f_t = σ( x_t W_f + b_f + u_t R_f + c_{t-1} P_f )
        o_t = σ( x_t W_o + b_o + u_t R_o + c_{t-1} P_o )     peephole=full
            | σ( x_t W_o + b_o + u_t R_o + c_t P_o )         peephole=diagonal
        u_t = h_{t-1}                                        gate_recurrence=False
            | [h_{t-1}, i_{t-1}, f_{t-1}, o_{t-1}]           gate_recurrence=True
        g_t = φ( x_t W_g + b_g + h_{t-1} R_g )
        c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t
        h_t = o_t ⊙ ψ(c_t)

    φ and ψ are tanh. `full` has the three full matrices P of S3. `diagonal` is the published form:
    each gate reads its own channel only, and o reads c_t instead of c_{t-1}; it is the "vanilla
    LSTM" of Greff et al. 2015, whose eight variants are seven cuts and `gate_recurrence` (FGR).
    Cuts:

        0  input_gate         i_t → 1: NIG
        1  forget_gate        f_t → 1: NFG
        2  output_gate        o_t → 1: NOG
        3  input_activation   φ(u) → u: NIAF
        4  output_activation  ψ(u) → u: NOAF
        5  coupled            f_t = 1 − i_t: CIFG
        6  peepholes          c_{t-1} P_i; c_{t-1} P_f; c_{t-1} P_o; c_t P_o: NP, the `lstm` cell

    All other weights start with the same values as in the full cell, and as in `lstm`. Greff et al.
    draw all weights from N(0, 0.1²); here `recipe.init=normal_0.1` does.

    Gers & Schmidhuber 2000; Greff et al. 2015 (arXiv:1503.04069). Source: S3.
    """

    num_state_vectors = 2

    @config
    class Config:
        """The kind of peepholes, gates that read gates, and the cuts, by name or number."""

        peephole: Peephole = Peephole.FULL
        gate_recurrence: StrictBool = Field(default=False, exclude_if=lambda on: not on)
        """Gates read all gates of the step before (FGR)."""
        cuts: Cuts[Cut] = Field(frozenset(), exclude_if=lambda cuts: not cuts)

        @model_validator(mode="after")
        def _cuts_fit_together(self) -> Any:
            cuts = self.cuts
            if Cut.COUPLED in cuts and cuts & {Cut.INPUT_GATE, Cut.FORGET_GATE}:
                raise UserError(
                    "the cut coupled (5) is f = 1 − i, which needs both gates; remove it, or "
                    "input_gate (0) and forget_gate (1)"
                )
            # Equal functions, equal configs.
            if not _kept(cuts):
                object.__setattr__(self, "cuts", cuts - {Cut.PEEPHOLES})
                # Fields that nothing reads without a gate.
                object.__setattr__(self, "gate_recurrence", False)
            if Cut.PEEPHOLES in cuts or not _kept(cuts):
                object.__setattr__(self, "peephole", Peephole.FULL)
            return self

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        self.kept = _kept(self.cuts)
        h = width
        shapes = gate_shapes(h)
        if config.peephole is Peephole.FULL:
            shapes["weight_ch"] = (3 * h, h)
        else:
            shapes["weight_ch"] = (3, h)
        if config.gate_recurrence:
            shapes["weight_gates"] = (3 * h, 3 * h)
        cut = set()
        if Cut.PEEPHOLES in self.cuts or not self.kept:
            cut = {"weight_ch"}
        self.w = Weights(shapes, cut, fan_in=h, adjust=self._keep)

    def _keep(self, name: str, drawn: Tensor) -> Tensor:
        """Return the rows of the gates that are left; of gate recurrence also the columns."""
        if name == "weight_gates":
            # Its columns are gates, too: both axes lose those that are cut.
            drawn = keep_gates(drawn.mT, "ifo", self.kept).mT
        gates = "ifgo"
        if name in ("weight_ch", "weight_gates"):
            gates = "ifo"
        return keep_gates(drawn, gates, ["g"] + self.kept)

    def _full(self, weight: Tensor, gates: str = "ifgo") -> Tensor:
        """Return rows for all gates: 0 where a gate is cut, −i for a coupled f = σ(−…)."""
        weight = all_gates(weight, gates, ["g"] + self.kept)
        if Cut.COUPLED not in self.cuts:
            return weight
        # f = 1 − σ(i) = σ(−i)
        parts = list(weight.chunk(len(gates)))
        i = parts[0]
        parts[1] = -i
        return torch.cat(parts)

    @property
    def _bias(self) -> Tensor:
        both = self.w.bias_ih + self.w.bias_hh
        bias = self._full(both)
        opened = {gate for gate in "ifo" if CONSTANT[gate] in self.cuts}
        if not opened:
            return bias
        # A large logit opens a gate: σ(100) is 1 in float32.
        shifts = []
        for gate in "ifgo":
            shift = 0.0
            if gate in opened:
                shift = OPEN
            shifts.append(bias.new_full((self.width,), shift))
        return bias + torch.cat(shifts)

    def project(self, x: Tensor) -> Tensor:
        weight = self._full(self.w.weight_ih)
        return linear(x, weight, self._bias)

    def initial_state(self, start: Tensor) -> State:
        state = super().initial_state(start)
        if not self.config.gate_recurrence:
            return state
        # The gates of the token before, which are zero at the start.
        gates = start.new_zeros(len(start), 3 * self.width)
        return state + (gates,)

    @property
    def state_size(self) -> int | None:
        vectors = 2
        if self.config.gate_recurrence:
            vectors += 3  # the gates
        return vectors * self.width

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        h, c = state[:2]
        memory = state[2:]  # the gates
        w = self.w
        weight = self._full(w.weight_hh)
        rows = projected + h @ weight.T
        i, f, g, o = rows.chunk(4, -1)
        if memory:
            # The gates of the token before act on those of this one.
            gates = memory[0]
            fed = gates @ self._full_gates().T
            fed_i, fed_f, fed_o = fed.chunk(3, -1)
            i = i + fed_i
            f = f + fed_f
            o = o + fed_o
        if Cut.INPUT_ACTIVATION not in self.cuts:
            g = g.tanh()
        peep = self._peepholes(c)
        i = torch.sigmoid(i + peep[0])
        f = torch.sigmoid(f + peep[1])
        c = f * c + i * g
        # The published o reads the new cell state.
        if self.config.peephole is Peephole.DIAGONAL:
            peep = self._peepholes(c)
        o = torch.sigmoid(o + peep[2])
        shown = c
        if Cut.OUTPUT_ACTIVATION not in self.cuts:
            shown = c.tanh()
        h = o * shown
        if memory:
            gates = torch.cat([i, f, o], -1)
            return h, (h, c, gates)
        return h, (h, c)

    def _peepholes(self, c: Tensor) -> list[Tensor]:
        """Return what i, f and o read of c."""
        if self.w.weight_ch is None:
            return [torch.zeros_like(c)] * 3
        weight = self._full(self.w.weight_ch, "ifo")
        if self.config.peephole is Peephole.FULL:
            rows = c @ weight.T
            return list(rows.chunk(3, -1))
        return [c * row for row in weight]

    def _full_gates(self) -> Tensor:
        """Return the weights of the gates before, rows and columns of i, f, o."""
        columns = all_gates(self.w.weight_gates.mT, "ifo", self.kept)
        return self._full(columns.mT, "ifo")

    def fast_scan(self, x: Inputs, start: Tensor) -> Tensor | None:
        # Not from `initial_state`: the kernel makes the gates itself.
        state = start.chunk(2, -1)
        done = self.fast_scan_from(x, state)
        if done is None:
            return None
        return done[0]

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState | None:
        """Run the kernel, which begins without gates; None on a GPU, and with full peepholes."""
        if len(state) > 2:
            return None
        w = self.w
        peepholes = None
        if w.weight_ch is not None:
            # The kernels have no full peepholes: these are a product more in every step.
            if self.config.peephole is Peephole.FULL:
                return None
            peepholes = self._full(w.weight_ch, "ifo")
        start = torch.cat(state, -1)
        recurrence = find_recurrence(
            "lstm",
            start,
            on_gpu=False,
            squash_input=Cut.INPUT_ACTIVATION not in self.cuts,
            squash_output=Cut.OUTPUT_ACTIVATION not in self.cuts,
        )
        if recurrence is None:
            return None
        feedback = None
        if self.config.gate_recurrence:
            # The kernel's feedback is from all four blocks to all four; the candidate has none.
            feedback = _with_candidate(self._full_gates().mT)
        hidden = self._full(w.weight_hh).mT
        weights = [hidden, peepholes, feedback]
        projected = recurrence.project(self.project, x)
        outputs = scan(recurrence, projected, start, weights)
        return _with_last_state(outputs, state)


def _kept(cuts: frozenset[Cut]) -> list[str]:
    kept = [gate for gate in "ifo" if CONSTANT[gate] not in cuts]
    if Cut.COUPLED in cuts:
        kept.remove("f")  # a function of i
    return kept


def _with_candidate(weight: Float[Tensor, "F F"]) -> Float[Tensor, "G G"]:
    """Add rows and columns of zeros for the candidate."""
    rows = all_gates(weight, "ifgo", "ifo")
    columns = all_gates(rows.mT, "ifgo", "ifo")
    return columns.mT


MatrixDraw = StrEnum("MatrixDraw", "GLOROT LSTM")
"""The initial matrices: as published, or as those of the LSTM."""


@CELLS("janet")
class Janet(Cell):
    """An LSTM without input gate, output gate and output activation; its state is c.

        s_t = x_t W_f + b_f + c_{t-1} R_f
        f_t = σ( s_t )        i_t = 1 − σ( s_t − β )
        g_t = tanh( x_t W_g + b_g + c_{t-1} R_g )
        c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t
        y_t = c_t

    β is `beta`; with β = 0 it is the cell `lstm_peephole` without peepholes, output gate and output
    activation, and with coupled gates. b_g starts at 0 and b_f at log U(1, T − 1), T the length of
    a sequence (the chrono initialisation), the state at 0. The matrices start at U(±√(2/H))
    (Glorot), with draw=lstm at U(±1/√H).

    Differences from the authors' code (JosvanderWesthuizen/janet, `aux_code/rnn_cells.py`):

        there                              here                        why
        b_f at log U(1, T)                 log U(1, T − 1)             Tallec & Ollivier 2018

    van der Westhuizen & Lasenby 2018 (arXiv:1804.04849); Tallec & Ollivier 2018 (arXiv:1804.11188).
    """

    zero_start = 1.0

    @config
    class Config:
        """The shift of the input gate, and the draw of the matrices."""

        beta: float = Field(1.0, allow_inf_nan=False)
        """β: with β > 0 the cell writes more than it forgets."""
        draw: MatrixDraw = MatrixDraw.GLOROT

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)

        def bias(shape: Shape) -> Tensor:
            # Chrono initialisation: biases log U(1, T−1) make gates that remember up to T steps.
            longest = max(length - 1, 1)
            times = torch.empty(width).uniform_(1, longest)
            return torch.cat([times.log(), torch.zeros(width)])

        matrix = (2 * width, width)
        shapes = {"weight_ih": matrix, "weight_hh": matrix, "bias": (2 * width,)}
        own = {"bias": bias}
        if config.draw is MatrixDraw.GLOROT:
            draw = glorot(1.0)
            own |= {"weight_ih": draw, "weight_hh": draw}
        self.w = Weights(shapes, fan_in=width, own=own)

    def project(self, x: Tensor) -> Tensor:
        return linear(x, self.w.weight_ih, self.w.bias)

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        (c,) = state
        rows = projected + c @ self.w.weight_hh.T
        s, g = rows.chunk(2, -1)
        # i = 1 − σ(s − β) = σ(β − s)
        i = torch.sigmoid(self.config.beta - s)
        f = s.sigmoid()
        c = f * c + i * g.tanh()
        return c, (c,)

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState | None:
        """Run the kernel of the LSTM: i reads −s, o has no weights and is open."""
        (c,) = state
        found = find_recurrence("lstm", c, on_gpu=False, squash_output=False)
        if found is None:
            return None

        def project(x: Tensor) -> Tensor:
            rows = self.project(x)
            f, g = rows.chunk(2, -1)
            i = self.config.beta - f
            # JANET has no output gate: an open one is the identity.
            o = torch.full_like(g, OPEN)
            return torch.cat([i, f, g, o], -1)

        f, g = self.w.weight_hh.chunk(2)
        o = torch.zeros_like(g)
        # i reads −f, so that i = σ(β − s).
        rows = torch.cat([-f, f, g, o])
        weights = [rows.mT, None, None]
        start = torch.cat([c, c], -1)
        projected = found.project(project, x)
        outputs = scan(found, projected, start, weights)[0]
        last = outputs[:, -1]
        return outputs, (last,)
