r"""The hierarchical multiscale LSTM: layers that find the boundaries of their segments.

    s   = U^ℓ h^ℓ_{t-1} + z^ℓ_{t-1} D^ℓ h^{ℓ+1}_{t-1} + z^{ℓ-1}_t W^ℓ h^{ℓ-1}_t + b^ℓ
    i, f, g, o, z̃ = σ, σ, tanh, σ, hardsigm of the parts of s;   z^ℓ_t = [z̃ > ½]
    UPDATE  z^ℓ_{t-1} = 0, z^{ℓ-1}_t = 1    c = f ⊙ c + i ⊙ g
    COPY    z^ℓ_{t-1} = 0, z^{ℓ-1}_t = 0    c and h stay
    FLUSH   z^ℓ_{t-1} = 1                   c = i ⊙ g
    h^ℓ = o ⊙ tanh(c)  unless COPY
    y_t = ReLU( Σ_ℓ σ( v^ℓ · [h¹ .. h^D] ) E^ℓ h^ℓ )                    the output

h⁰ = x and z⁰ = 1; the top layer has no boundary and nothing above it.
hardsigm(s) = clip((a s + 1) / 2, 0, 1), and z passes its gradient on as if it were z̃. As
z = [s > 0] whatever a is, the slope shapes gradients and never the density. Under
`anneal` it grows with the scans n that were trained on, which the weights are saved with:

    a = a_0 + (5 − a_0) min(1, n / anneal)       published: min(5, 1 + 0.04 epoch)

Chung et al. 2017 (arXiv:1609.01704); S2; zoo.md 4.2.
"""

from typing import Annotated, Any, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights, as_drawn
from lmzoo.config import config
from lmzoo.errors import UserError
from lmzoo.search_space import FloatRange, IntRange

STEEPEST = 5.0
"""Where the slope's growth ends."""


@CELLS("hm_lstm")
class HierarchicalMultiscaleLSTM(Cell):
    """D layers; a layer moves on where the one below it ends a segment."""

    @config
    class Config:
        """How many layers, and how steep their boundary detectors."""

        depth: Annotated[int, IntRange(1, 4)] = Field(2, ge=1)
        """D."""
        slope: Annotated[float, FloatRange(1.0, 5.0)] = Field(1.0, gt=0, allow_inf_nan=False)
        """a, or what it grows from."""
        anneal: int = Field(0, ge=0)
        """Training scans (steps of the optimiser) after which the slope is 5; published: those
        of 100 epochs. 0, as the row has it, leaves it: runs that count are not trained together."""

        @model_validator(mode="after")
        def _it_grows(self) -> Any:
            if self.anneal and self.slope >= STEEPEST:
                raise UserError(
                    f"slope={self.slope:g} cannot grow to {STEEPEST:g} in anneal={self.anneal} "
                    "steps; begin with less, as 1, or drop anneal"
                )
            return self

    scans: Tensor | None

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        d, h = config.depth, width
        self.parts = 2 * d
        self.layers = nn.ModuleList(_layer(h, top=j == d - 1) for j in range(d))
        self.out = Weights({"gate": (d, d * h), "embed": (d, h, h)}, cut=set(), fan_in=h)
        # Saved with the weights, so that a training that was cut off goes on with its slope.
        self.register_buffer("scans", torch.zeros((), dtype=torch.int64) if config.anneal else None)

    @property
    def state_size(self) -> int | None:
        return self.parts * self.width + self.config.depth - 1

    def initial(self, start: Tensor) -> State:
        none = start.new_zeros(len(start), self.config.depth - 1)
        return (*start.chunk(self.parts, dim=-1), none)

    def project(self, x: Tensor) -> Tensor:
        return x

    @property
    def slope(self) -> Tensor | float:
        """a, as far as training has come."""
        begin = self.config.slope
        if self.scans is None:
            return begin
        return begin + (STEEPEST - begin) * (self.scans / self.config.anneal).clamp(max=1)

    def naive_scan(self, x: Inputs, start: Tensor) -> Tensor:
        outputs = super().naive_scan(x, start)
        if self.scans is not None and self.training and torch.is_grad_enabled():
            self.scans += 1
        return outputs

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """`i 1`, ..: those of layer 1; `z 1`: its boundary, 0 or 1; `out`: one for each layer."""
        return self._climb(projected, state)[2]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        output, state, _ = self._climb(projected, state)
        return output, state

    def _climb(self, projected: Tensor, state: State) -> tuple[Tensor, State, dict[str, Tensor]]:
        """All layers, lowest first: (output, next state, the gates met on the way)."""
        depth, met = self.config.depth, {}
        hidden, cells, ended = list(state[:depth]), list(state[depth:-1]), state[-1]
        before, boundaries = state[:depth], []
        below, moved = projected, torch.ones_like(projected[:, :1])
        for j, layer in enumerate(self.layers):
            w = cast("Weights", layer)
            s = before[j] @ w.own.T + moved * (below @ w.below.T) + w.bias
            flush = torch.zeros_like(moved)
            if j < depth - 1:
                flush = ended[:, j : j + 1]
                s = s + flush * (before[j + 1] @ w.above.T)
            i, f, g, o = s[:, : 4 * self.width].chunk(4, dim=-1)
            i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
            met |= {f"i {j + 1}": i, f"f {j + 1}": f, f"o {j + 1}": o}
            written = i * torch.tanh(g)
            kept = moved * f + (1 - moved)
            written = (flush + (1 - flush) * moved) * written
            cells[j] = (1 - flush) * kept * cells[j] + written
            copy = (1 - flush) * (1 - moved)
            hidden[j] = copy * hidden[j] + (1 - copy) * o * torch.tanh(cells[j])
            below, moved = hidden[j], self._boundary(s[:, 4 * self.width :])
            if j < depth - 1:
                met[f"z {j + 1}"] = moved
                boundaries.append(moved)
        z = torch.cat(boundaries, dim=-1) if boundaries else ended
        met["out"] = torch.sigmoid(torch.cat(hidden, dim=-1) @ self.out.gate.T)
        return self._output(hidden, met["out"]), (*hidden, *cells, z), met

    def _boundary(self, s: Tensor) -> Tensor:
        soft = ((self.slope * s + 1) / 2).clamp(0, 1)
        # Exactly 0 or 1 in value: the difference is zero, and carries the gradient.
        return (soft > 0.5).to(s.dtype) + (soft - soft.detach())

    def _output(self, hidden: list[Tensor], gates: Tensor) -> Tensor:
        words = torch.einsum("bdh,dkh->bdk", torch.stack(hidden, dim=1), self.out.embed)
        return torch.relu((gates[..., None] * words).sum(1))


def _layer(width: int, *, top: bool) -> Weights:
    """The weights of one layer; a top layer has no boundary and nothing above."""
    rows = 4 * width + (not top)
    shapes = {
        "own": (rows, width), "below": (rows, width), "bias": (rows,), "above": (rows, width),
    }  # fmt: skip
    cut, adjust = ({"above"}, as_drawn) if top else (set(), _ajar)
    return Weights(shapes, cut, fan_in=width, adjust=adjust)


def _ajar(name: str, drawn: Tensor) -> Tensor:
    """Boundaries begin more often open than shut: behind a shut one nothing learns."""
    return torch.cat([drawn[:-1], torch.full_like(drawn[-1:], 0.5)]) if name == "bias" else drawn
