r"""The gated feedback network: every layer reads every layer, with one gate per pair.

    h*_{t-1} = [h¹_{t-1} .. h^D_{t-1}],   h⁰_t = x_t
    G^{i→j}  = σ( w^{i→j} · h^{j-1}_t + u^{i→j} · h*_{t-1} )           a scalar
    s^j      = Σ_i G^{i→j} U^{i→j} h^i_{t-1}
    h^j_t    = tanh( W^j h^{j-1}_t + b^j + s^j )                       unit=tanh

With `unit=lstm`, tanh(..) is the candidate of an LSTM, whose gates i, f, o read h^{j-1}_t and
h^j_{t-1} only. With `unit=gru` the candidate is tanh( W^j h^{j-1}_t + b^j + r ⊙ s^j ), and z = 1
keeps the old state. The output is h^D. With G^{i→j} = [i = j] it is a stack of plain cells.

Chung et al. 2015 (arXiv:1502.02367). Source: S2.
"""

from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.search_space import IntRange
from lmzoo.cells.base import CELLS, Cell, State, Weights

Unit = StrEnum("Unit", "TANH LSTM GRU")
"""The recurrence of each layer."""
GATES = {Unit.TANH: "", Unit.LSTM: "ifo", Unit.GRU: "rz"}
"""Names of the gates inside a layer."""


@CELLS("gated_feedback")
class GatedFeedback(Cell):
    """D layers, each of which reads the last states of all layers."""

    @config
    class Config:
        """Number of layers and their recurrence."""

        unit: Unit = Unit.TANH
        depth: Annotated[int, IntRange(1, 4)] = Field(2, ge=1)
        """D, the number of layers."""

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        d, h, gates = config.depth, width, len(GATES[config.unit])
        self.num_state_vectors = 2 * d if config.unit is Unit.LSTM else d
        shapes = {
            "w": (d, h, h),
            "u": (d, d, h, h),  # into j, from i
            "b": (d, h),
            "global_below": (d, d, h),
            "global_before": (d, d, d * h),
            "gates_below": (d, gates * h, h),
            "gates_before": (d, gates * h, h),
            "gates_bias": (d, gates * h),
        }
        cut = set() if gates else {"gates_below", "gates_before", "gates_bias"}
        self.w = Weights(shapes, cut, fan_in=h, biases={"b", "gates_bias"})

    def project(self, x: Tensor) -> Tensor:
        return x

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return the gates by name: `G→2` from each layer into layer 2; `i 2` inside layer 2."""
        return self._run_layers(projected, state)[1]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        state, _ = self._run_layers(projected, state)
        return state[self.config.depth - 1], state

    def _run_layers(self, projected: Tensor, state: State) -> tuple[State, dict[str, Tensor]]:
        """Run all layers, lowest first; return the next state and the gates."""
        depth = self.config.depth
        before, memory = torch.stack(state[:depth], dim=1), state[depth:]
        below, hidden, cells, gates = projected, [], [], {}
        for j in range(depth):
            reset = self.reset(j, below, before)
            s = torch.einsum("bi,ikh,bih->bk", reset, self.w.u[j], before)
            own = self._own_gates(j, below, before[:, j])
            candidate = below @ self.w.w[j].T + self.w.b[j]
            c = memory[j] if memory else None
            below, cell = self._layer(candidate, before[:, j], s, own, c)
            gates[f"G→{j + 1}"] = reset
            gates |= {f"{name} {j + 1}": gate for name, gate in own.items()}
            hidden.append(below)
            cells += [] if cell is None else [cell]
        return (*hidden, *cells), gates

    def reset(
        self, j: int, below: Float[Tensor, "B H"], before: Float[Tensor, "B D H"]
    ) -> Float[Tensor, "B D"]:
        """Return G^{i→j} for every i."""
        return torch.sigmoid(
            below @ self.w.global_below[j].T + before.flatten(1) @ self.w.global_before[j].T
        )

    def _own_gates(self, j: int, below: Tensor, own: Tensor) -> dict[str, Tensor]:
        w, names = self.w, GATES[self.config.unit]
        if not names:
            return {}
        gates = below @ w.gates_below[j].T + own @ w.gates_before[j].T + w.gates_bias[j]
        return dict(zip(names, torch.sigmoid(gates).chunk(len(names), dim=-1), strict=True))

    def _layer(
        self, candidate: Tensor, own: Tensor, s: Tensor, gates: dict[str, Tensor], c: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return h and c of one layer from its last h (`own`) and c."""
        if self.config.unit is Unit.TANH:
            return torch.tanh(candidate + s), None
        if self.config.unit is Unit.GRU:
            n = torch.tanh(candidate + gates["r"] * s)
            return n + gates["z"] * (own - n), None
        assert c is not None
        c = gates["f"] * c + gates["i"] * torch.tanh(candidate + s)
        return gates["o"] * torch.tanh(c), c
