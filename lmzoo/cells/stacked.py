"""Stacks of layers in one cell: gated feedback, hierarchical multiscale LSTM and grid LSTM."""

from enum import StrEnum
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, StrictBool, model_validator
from torch import Tensor, nn
from torch.nn.functional import linear

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.cells.base import (
    CELLS,
    Cell,
    Depth,
    Inputs,
    OutputAndState,
    Parts,
    State,
    Weights,
    keep_drawn,
)
from lmzoo.types import Hidden, Shape

Unit = StrEnum("Unit", "TANH LSTM GRU")
"""The recurrence of each layer."""
GATES = {
    Unit.TANH: "",
    Unit.LSTM: "ifo",
    Unit.GRU: "rz",
}
"""The gates inside a layer."""


@CELLS("gated_feedback")
class GatedFeedback(Cell):
    """D layers, each of which reads the last states of all layers.

        h*_{t-1} = [h¹_{t-1} .. h^D_{t-1}],   h⁰_t = x_t
        G^{i→j}  = σ( w^{i→j} · h^{j-1}_t + u^{i→j} · h*_{t-1} )           a scalar
        s^j      = Σ_i G^{i→j} U^{i→j} h^i_{t-1}
        h^j_t    = tanh( W^j h^{j-1}_t + b^j + s^j )                       unit=tanh

    With `unit=lstm`, tanh(..) is the candidate of an LSTM, whose gates i, f, o read h^{j-1}_t and
    h^j_{t-1} only. With `unit=gru` the candidate is tanh( W^j h^{j-1}_t + b^j + r ⊙ s^j ), and z =
    1 keeps the old state. The output is h^D. With G^{i→j} = [i = j] it is a stack of plain cells.

    Chung et al. 2015 (arXiv:1502.02367). Source: S2.
    """

    @config
    class Config:
        """Number of layers and their recurrence."""

        unit: Unit = Unit.TANH
        depth: Depth = 2
        """D, the number of layers."""

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        d = config.depth
        h = width
        gates = len(GATES[config.unit])
        if config.unit is Unit.LSTM:
            self.num_state_vectors = 2 * d
        else:
            self.num_state_vectors = d
        # The order of the draws: what a seed gives depends on it.
        shapes: dict[str, Shape] = {
            "w": (d, h, h),
            "u": (d, d, h, h),
            "b": (d, h),  # u: into j, from i
            "global_below": (d, d, h),
            "global_before": (d, d, d * h),
            "gates_below": (d, gates * h, h),
            "gates_before": (d, gates * h, h),
            "gates_bias": (d, gates * h),
        }
        cut = {"gates_below", "gates_before", "gates_bias"}
        if gates:
            cut = set()
        self.w = Weights(shapes, cut, fan_in=h, biases={"b", "gates_bias"})

    def project(self, x: Tensor) -> Tensor:
        return x

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        depth = self.config.depth
        before = torch.stack(state[:depth], 1)
        memory = state[depth:]
        below = projected
        hidden = []
        cells = []
        for j in range(depth):
            reset = self.reset(j, below, before)
            # Each of the layers i before feeds layer j, by its own share r_ij.
            s = torch.einsum("bi,ikh,bih->bk", reset, self.w.u[j], before)
            gates = self._own_gates(j, below, before[:, j])
            candidate = below @ self.w.w[j].T + self.w.b[j]
            c = None
            if memory:
                c = memory[j]
            below, cell = self._layer(candidate, before[:, j], s, gates, c)
            hidden.append(below)
            if cell is not None:
                cells.append(cell)
        return below, tuple(hidden + cells)

    def reset(
        self,
        j: int,
        below: Hidden,
        before: Float[Tensor, "B D H"],
    ) -> Float[Tensor, "B D"]:
        """Return G^{i→j} for every i."""
        from_below = below @ self.w.global_below[j].T
        every = before.flatten(1)
        from_before = every @ self.w.global_before[j].T
        return torch.sigmoid(from_below + from_before)

    def _own_gates(self, j: int, below: Tensor, own: Tensor) -> Parts:
        w = self.w
        names = GATES[self.config.unit]
        if not names:
            return {}
        from_below = below @ w.gates_below[j].T
        from_own = own @ w.gates_before[j].T
        logits = from_below + from_own + w.gates_bias[j]
        parts = logits.sigmoid().chunk(len(names), -1)
        return dict(zip(names, parts, strict=True))

    def _layer(
        self,
        candidate: Tensor,
        own: Tensor,
        s: Tensor,
        gates: Parts,
        c: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        if self.config.unit is Unit.TANH:
            return torch.tanh(candidate + s), None
        if self.config.unit is Unit.GRU:
            # As in the GRU of cuDNN: r multiplies the product, not the state.
            reset = gates["r"] * s
            n = torch.tanh(candidate + reset)
            return n + gates["z"] * (own - n), None
        assert c is not None
        g = torch.tanh(candidate + s)
        c = gates["f"] * c + gates["i"] * g
        return gates["o"] * c.tanh(), c


MAX_SLOPE = 5.0
Slope = Annotated[float, FloatRange(1.0, 5.0), Field(gt=0, allow_inf_nan=False)]
"""Final value of an annealed slope."""


@CELLS("hm_lstm")
class HierarchicalMultiscaleLSTM(Cell):
    """D layers; a layer updates its state where the layer below ends a segment.

        s   = U^ℓ h^ℓ_{t-1} + z^ℓ_{t-1} D^ℓ h^{ℓ+1}_{t-1} + z^{ℓ-1}_t W^ℓ h^{ℓ-1}_t + b^ℓ
        i, f, g, o, z̃ = σ, σ, tanh, σ, hardsigm of the parts of s;   z^ℓ_t = [z̃ > ½]
        UPDATE  z^ℓ_{t-1} = 0, z^{ℓ-1}_t = 1    c = f ⊙ c + i ⊙ g
        COPY    z^ℓ_{t-1} = 0, z^{ℓ-1}_t = 0    c and h are kept
        FLUSH   z^ℓ_{t-1} = 1                   c = i ⊙ g
        h^ℓ = o ⊙ tanh(c)  unless COPY
        y_t = ReLU( Σ_ℓ σ( v^ℓ · [h¹ .. h^D] ) E^ℓ h^ℓ )                    the output

    h⁰ = x and z⁰ = 1; the top layer has no boundary detector and no layer above. hardsigm(s) =
    clip((a s + 1) / 2, 0, 1). z uses the gradient of z̃ (straight-through). Since z = [s > 0] for
    every a, the slope affects gradients but not the density. With `anneal` the slope grows with the
    number n of training scans, which checkpoints contain:

        a = a_0 + (5 − a_0) min(1, n / anneal)       published: min(5, 1 + 0.04 epoch)

    Chung et al. 2017 (arXiv:1609.01704). Source: S2.
    """

    @config
    class Config:
        """Number of layers and slope of their boundary detectors."""

        depth: Depth = 2
        """D, the number of layers."""
        slope: Slope = 1.0
        """a, or its initial value a_0 with `anneal`."""
        anneal: int = Field(0, ge=0)
        """Training scans (optimiser steps) until the slope is 5; published: those of 100 epochs.
        0 keeps the slope constant. Runs with `anneal` are not packed: they count their scans."""

        @model_validator(mode="after")
        def _slope_can_grow(self) -> Any:
            if self.anneal and self.slope >= MAX_SLOPE:
                raise UserError(
                    f"slope={self.slope:g} cannot grow to {MAX_SLOPE:g} in anneal={self.anneal} "
                    "steps; set a smaller slope such as 1, or remove anneal"
                )
            return self

    scans: Tensor | None
    estimated_gradient = "straight-through, of the boundaries"

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        d = config.depth
        h = width
        self.num_state_vectors = 2 * d
        self.num_boundaries = d - 1
        self.layers: Any = nn.ModuleList()
        for j in range(d):
            top = j == d - 1
            self.layers.append(_layer(h, top=top))
        shapes = {"gate": (d, d * h), "embed": (d, h, h)}
        self.out = Weights(shapes, fan_in=h)
        # A buffer, so that a resumed training continues with the same slope.
        scans = None
        if config.anneal:
            scans = torch.zeros((), dtype=torch.int64)
        self.register_buffer("scans", scans)

    @property
    def state_size(self) -> int | None:
        return self.start_size + self.num_boundaries

    @property
    def unused(self) -> int:
        """Entries of D^ℓ for f: after a boundary, where D^ℓ is read, FLUSH does not use f."""
        return self.num_boundaries * self.width**2

    def initial_state(self, start: Tensor) -> State:
        # No segment has ended before the first token.
        no_boundaries = start.new_zeros(len(start), self.num_boundaries)
        vectors = start.chunk(self.num_state_vectors, -1)
        return vectors + (no_boundaries,)

    def boundaries(self, state: State) -> Tensor:
        return state[-1]

    def project(self, x: Tensor) -> Tensor:
        return x

    @property
    def slope(self) -> Tensor | float:
        """The current slope a."""
        first = self.config.slope
        if self.scans is None:
            return first
        share = (self.scans / self.config.anneal).clamp(max=1)
        return first + (MAX_SLOPE - first) * share

    def naive_scan_from(self, x: Inputs, state: State) -> OutputAndState:
        outputs = super().naive_scan_from(x, state)
        # An evaluation counts no scan: it has no gradients.
        if self.scans is not None and self.training and torch.is_grad_enabled():
            self.scans += 1
        return outputs

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        depth = self.config.depth
        hidden = list(state[:depth])
        cells = list(state[depth:-1])
        old_boundaries = state[-1]
        old_hidden = state[:depth]
        boundaries = []
        # The output and the boundary of the layer below, z^{ℓ-1}_t.
        below = projected
        # Every token is a segment of the bottom layer.
        z_below = torch.ones_like(projected[:, :1])
        for j, w in enumerate(self.layers):
            from_own = old_hidden[j] @ w.own.T
            from_below = z_below * (below @ w.below.T)
            s = from_own + from_below + w.bias
            flush = torch.zeros_like(z_below)
            # The top layer has no layer above, and never ends a segment.
            if j < depth - 1:
                flush = old_boundaries[:, j : j + 1]
                above = old_hidden[j + 1] @ w.above.T
                s = s + flush * above
            gates = 4 * self.width
            rows = s[:, :gates]
            i, f, g, o = rows.chunk(4, -1)
            i = i.sigmoid()
            f = f.sigmoid()
            o = o.sigmoid()
            new = i * g.tanh()
            # UPDATE, COPY and FLUSH as products with 0 and 1: rows of a batch differ.
            keep = z_below * f + (1 - z_below)
            # A flush writes also where the layer below has not ended a segment.
            writes = flush + (1 - flush) * z_below
            new = writes * new
            cells[j] = (1 - flush) * keep * cells[j] + new
            copy = (1 - flush) * (1 - z_below)
            shown = (1 - copy) * o * cells[j].tanh()
            hidden[j] = copy * hidden[j] + shown
            below = hidden[j]
            z_below = self._boundary(s[:, gates:])
            if j < depth - 1:
                boundaries.append(z_below)
        z = old_boundaries
        if boundaries:
            z = torch.cat(boundaries, -1)
        every = torch.cat(hidden, -1)
        shares = torch.sigmoid(every @ self.out.gate.T)
        stacked = torch.stack(hidden, 1)
        terms = torch.einsum("bdh,dkh->bdk", stacked, self.out.embed)
        y = (shares[..., None] * terms).sum(1).relu()
        return y, tuple(hidden + cells + [z])

    def _boundary(self, s: Tensor) -> Tensor:
        """Return z from s, with the gradient of the hard sigmoid."""
        line = (self.slope * s + 1) / 2
        soft = line.clamp(0, 1)
        hard = (soft > 0.5).to(s.dtype)
        # The difference is zero in value and carries the gradient.
        return hard + (soft - soft.detach())


def _layer(width: int, *, top: bool) -> Weights:
    """Return the weights of one layer; the top layer has no boundary and no layer above."""
    rows = 4 * width
    if not top:
        rows += 1  # that of the boundary detector
    shapes = {
        "own": (rows, width),
        "below": (rows, width),
        "bias": (rows,),
        "above": (rows, width),
    }
    cut = set()
    adjust = _set_boundary_bias
    if top:
        cut = {"above"}
        adjust = keep_drawn
    return Weights(shapes, cut, fan_in=width, adjust=adjust)


def _set_boundary_bias(name: str, drawn: Tensor) -> Tensor:
    """Set the boundary bias to 0.5: layers above a boundary that is always 0 get no gradient."""
    if name == "bias":
        # A hard boundary begins at s > 0: 0.5 lets the detector begin open.
        boundary = torch.full_like(drawn[-1:], 0.5)
        return torch.cat([drawn[:-1], boundary])
    return drawn


GridDepth = Annotated[int, IntRange(1, 6), Field(ge=1)]
Squash = StrEnum("Squash", "INSIDE OUTSIDE")
"""Position of the tanh in h': tanh(o ⊙ m') or o ⊙ tanh(m')."""
Along = StrEnum("Along", "LSTM TANH IDENTITY")
"""The function along the depth dimension."""


@CELLS("grid_lstm")
class GridLSTM(Cell):
    """D blocks of a two-dimensional grid of time and depth.

        H        = [h_time, h_depth]
        u, f, o  = σ( W H + b ),  ĉ = tanh( W H + b )      own rows; own W, b per dimension
        m'       = f ⊙ m + u ⊙ ĉ
        h'       = tanh( o ⊙ m' )                          squash=inside, as published
                 | o ⊙ tanh( m' )                          squash=outside, as an LSTM

    A step passes the (h, m) of the token through D blocks; each block also has an (h, m) along
    time. The output is h_depth of the last block. With `along=tanh` or `along=identity`, the depth
    dimension is h' = act(V H), without memory. With `priority` the depth dimension reads the new h'
    of time instead of the old h. `tied` blocks share their weights. Gates have the order u, f, ĉ,
    o.

    Kalchbrenner et al. 2016 (arXiv:1507.01526). Source: S2.
    """

    @config
    class Config:
        """Depth of the grid and variant of its blocks."""

        depth: GridDepth = 2
        """D, the number of blocks."""
        along: Along = Along.LSTM
        squash: Squash = Squash.INSIDE
        tied: StrictBool = False
        priority: StrictBool = False

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        h = width
        self.num_state_vectors = 2 * config.depth
        self._memory = config.along is Along.LSTM
        blocks = config.depth
        if config.tied:
            blocks = 1
        entered = h
        if self._memory:
            entered = 2 * h  # h and m of the depth dimension
        shapes = {"weight": (entered, h)}
        self.enter = Weights(shapes, fan_in=h)
        self.blocks: Any = nn.ModuleList()
        for _ in range(blocks):
            self.blocks.append(_block(h, memory=self._memory))

    def project(self, x: Tensor) -> Tensor:
        return x @ self.enter.weight.T

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        depth = self.config.depth
        squash = self.config.squash
        hidden = list(state[:depth])
        memory = list(state[depth:])
        entered = projected.split(self.width, -1)
        h = entered[0]
        m = entered[-1]  # h itself without a memory: it is not read
        for k in range(depth):
            block = k
            if self.config.tied:
                block = 0
            w = self.blocks[block]
            both = torch.cat([hidden[k], h], -1)
            new = update_memory(both, w.time, w.time_bias, memory[k], squash)
            hidden[k], memory[k] = new
            # Depth then reads the new h of time.
            if self.config.priority:
                both = torch.cat([hidden[k], h], -1)
            if self._memory:
                h, m = update_memory(both, w.depth, w.depth_bias, m, squash)
            else:
                h = both @ w.depth.T
                if self.config.along is Along.TANH:
                    h = h.tanh()
        return h, tuple(hidden + memory)


def update_memory(
    incoming: Float[Tensor, "B N"],
    weight: Tensor,
    bias: Tensor,
    m: Tensor,
    squash: Squash,
) -> tuple[Hidden, Hidden]:
    """Return (h', m') of one dimension."""
    rows = linear(incoming, weight, bias)
    u, f, c, o = rows.chunk(4, -1)
    u = u.sigmoid()
    f = f.sigmoid()
    o = o.sigmoid()
    m = f * m + u * c.tanh()
    if squash is Squash.INSIDE:
        return torch.tanh(o * m), m
    return o * m.tanh(), m


def _block(width: int, *, memory: bool) -> Weights:
    """Return the weights of a block; `memory` says whether the depth dimension is an LSTM."""
    rows = 4 * width
    depth = width
    if memory:
        depth = 4 * width
    shapes = {
        "time": (rows, 2 * width),
        "time_bias": (rows,),
        "depth": (depth, 2 * width),
        "depth_bias": (rows,),
    }
    # The depth dimension has no bias where it has no memory.
    cut = {"depth_bias"}
    if memory:
        cut = set()
    biases = {"time_bias", "depth_bias"}
    return Weights(shapes, cut, fan_in=2 * width, biases=biases)
