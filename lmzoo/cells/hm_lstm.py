r"""The hierarchical multiscale LSTM: layers that detect the boundaries of segments.

    s   = U^ℓ h^ℓ_{t-1} + z^ℓ_{t-1} D^ℓ h^{ℓ+1}_{t-1} + z^{ℓ-1}_t W^ℓ h^{ℓ-1}_t + b^ℓ
    i, f, g, o, z̃ = σ, σ, tanh, σ, hardsigm of the parts of s;   z^ℓ_t = [z̃ > ½]
    UPDATE  z^ℓ_{t-1} = 0, z^{ℓ-1}_t = 1    c = f ⊙ c + i ⊙ g
    COPY    z^ℓ_{t-1} = 0, z^{ℓ-1}_t = 0    c and h are kept
    FLUSH   z^ℓ_{t-1} = 1                   c = i ⊙ g
    h^ℓ = o ⊙ tanh(c)  unless COPY
    y_t = ReLU( Σ_ℓ σ( v^ℓ · [h¹ .. h^D] ) E^ℓ h^ℓ )                    the output

h⁰ = x and z⁰ = 1; the top layer has no boundary detector and no layer above.
hardsigm(s) = clip((a s + 1) / 2, 0, 1). z uses the gradient of z̃ (straight-through). Since
z = [s > 0] for every a, the slope affects gradients but not the density. With `anneal` the slope
grows with the number n of training scans, which checkpoints contain:

    a = a_0 + (5 − a_0) min(1, n / anneal)       published: min(5, 1 + 0.04 epoch)

Chung et al. 2017 (arXiv:1609.01704). Source: S2.
"""

from typing import Annotated, Any, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.cells.base import CELLS, Cell, Inputs, State, Weights, keep_drawn

MAX_SLOPE = 5.0
"""Final value of an annealed slope."""


@CELLS("hm_lstm")
class HierarchicalMultiscaleLSTM(Cell):
    """D layers; a layer updates its state where the layer below ends a segment."""

    @config
    class Config:
        """Number of layers and slope of their boundary detectors."""

        depth: Annotated[int, IntRange(1, 4)] = Field(2, ge=1)
        """D, the number of layers."""
        slope: Annotated[float, FloatRange(1.0, 5.0)] = Field(1.0, gt=0, allow_inf_nan=False)
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

    def __init__(self, config: Config, width: int, length: int) -> None:
        super().__init__(config, width, length)
        d, h = config.depth, width
        self.num_state_vectors = 2 * d
        self.num_boundaries = d - 1
        self.layers = nn.ModuleList(_layer(h, top=j == d - 1) for j in range(d))
        self.out = Weights({"gate": (d, d * h), "embed": (d, h, h)}, cut=set(), fan_in=h)
        # A buffer, so that a resumed training continues with the same slope.
        self.register_buffer("scans", torch.zeros((), dtype=torch.int64) if config.anneal else None)

    @property
    def state_size(self) -> int | None:
        return self.num_state_vectors * self.width + self.config.depth - 1

    @property
    def unused(self) -> int:
        """Entries of D^ℓ for f: after a boundary, where D^ℓ is read, FLUSH does not use f."""
        return (self.config.depth - 1) * self.width**2

    def initial_state(self, start: Tensor) -> State:
        no_boundaries = start.new_zeros(len(start), self.config.depth - 1)
        return (*start.chunk(self.num_state_vectors, dim=-1), no_boundaries)

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
        return first + (MAX_SLOPE - first) * (self.scans / self.config.anneal).clamp(max=1)

    def naive_scan(self, x: Inputs, start: Tensor) -> Tensor:
        outputs = super().naive_scan(x, start)
        if self.scans is not None and self.training and torch.is_grad_enabled():
            self.scans += 1
        return outputs

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return the gates by name: `i 1`, `f 1`, `o 1` and the boundary `z 1` are of layer 1.

        The top layer has no boundary. `out` has one gate for the output of each layer.
        """
        return self._run_layers(projected, state)[2]

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        output, state, _ = self._run_layers(projected, state)
        return output, state

    def _run_layers(
        self, projected: Tensor, state: State
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        """Run all layers, lowest first; return (output, next state, gates)."""
        depth, gates = self.config.depth, {}
        hidden, cells, old_boundaries = list(state[:depth]), list(state[depth:-1]), state[-1]
        old_hidden, boundaries = state[:depth], []
        # The output and the boundary of the layer below, z^{ℓ-1}_t.
        below, z_below = projected, torch.ones_like(projected[:, :1])
        for j, layer in enumerate(self.layers):
            w = cast("Weights", layer)
            s = old_hidden[j] @ w.own.T + z_below * (below @ w.below.T) + w.bias
            flush = torch.zeros_like(z_below)
            if j < depth - 1:
                flush = old_boundaries[:, j : j + 1]
                s = s + flush * (old_hidden[j + 1] @ w.above.T)
            i, f, g, o = s[:, : 4 * self.width].chunk(4, dim=-1)
            i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
            gates |= {f"i {j + 1}": i, f"f {j + 1}": f, f"o {j + 1}": o}
            new = i * torch.tanh(g)
            keep = z_below * f + (1 - z_below)
            new = (flush + (1 - flush) * z_below) * new
            cells[j] = (1 - flush) * keep * cells[j] + new
            copy = (1 - flush) * (1 - z_below)
            hidden[j] = copy * hidden[j] + (1 - copy) * o * torch.tanh(cells[j])
            below, z_below = hidden[j], self._boundary(s[:, 4 * self.width :])
            if j < depth - 1:
                gates[f"z {j + 1}"] = z_below
                boundaries.append(z_below)
        z = torch.cat(boundaries, dim=-1) if boundaries else old_boundaries
        gates["out"] = torch.sigmoid(torch.cat(hidden, dim=-1) @ self.out.gate.T)
        return self._output(hidden, gates["out"]), (*hidden, *cells, z), gates

    def _boundary(self, s: Tensor) -> Tensor:
        """Return z from s, with the gradient of the hard sigmoid."""
        soft = ((self.slope * s + 1) / 2).clamp(0, 1)
        # The difference is zero in value and carries the gradient.
        return (soft > 0.5).to(s.dtype) + (soft - soft.detach())

    def _output(self, hidden: list[Tensor], gates: Tensor) -> Tensor:
        """Return y from the hidden states of all layers and their output gates."""
        terms = torch.einsum("bdh,dkh->bdk", torch.stack(hidden, dim=1), self.out.embed)
        return torch.relu((gates[..., None] * terms).sum(1))


def _layer(width: int, *, top: bool) -> Weights:
    """Return the weights of one layer; the top layer has no boundary and no layer above."""
    rows = 4 * width + (not top)
    shapes = {
        "own": (rows, width), "below": (rows, width), "bias": (rows,), "above": (rows, width),
    }  # fmt: skip
    cut, adjust = ({"above"}, keep_drawn) if top else (set(), _set_boundary_bias)
    return Weights(shapes, cut, fan_in=width, adjust=adjust)


def _set_boundary_bias(name: str, drawn: Tensor) -> Tensor:
    """Set the boundary bias to 0.5: layers above a boundary that is always 0 get no gradient."""
    return torch.cat([drawn[:-1], torch.full_like(drawn[-1:], 0.5)]) if name == "bias" else drawn
