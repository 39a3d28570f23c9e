r"""How open the gates of a recurrent model are, and how large its state.

    mean       E[g]                      over sequences, steps and units
    spread     √ E[(g − E g)²]
    saturated  share of g < 0.05 or g > 0.95: there σ' < 0.05, and no gradient comes through
    state      ‖s_t‖ of each vector carried, at every step, mean over sequences

A gate that is saturated everywhere is a constant, one that never moves from ½ an average.
zoo.md 4.1, 4.4 (S1, S4).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmzoo.inspect.hooks import Activity, CellStep

SHUT, OPEN = 0.05, 0.95
"""Beyond these a gate counts as saturated."""

VECTOR = 2
"""Axes of a carried vector, (B, H); a state that grows has more."""


@dataclass(frozen=True)
class Gate:
    """One gate of one cell."""

    cell: str
    name: str
    mean: float
    spread: float
    saturated: float


@dataclass(frozen=True)
class Carry:
    """The state of one cell."""

    cell: str
    norms: list[list[float]]
    """Of each vector carried, at every step: h first."""


def gates(seen: Activity) -> list[Gate]:
    """Every gate of every cell that was stepped."""
    found = []
    for cell, steps in seen.steps.items():
        for name in steps[0].gates:
            values = torch.cat([step.gates[name].flatten() for step in steps]).double()
            found.append(_gate(cell, name, values))
    return found


def _gate(cell: str, name: str, values: Tensor) -> Gate:
    saturated = (values < SHUT) | (values > OPEN)
    return Gate(
        cell,
        name,
        mean=values.mean().item(),
        spread=values.std(correction=0).item(),
        saturated=saturated.double().mean().item(),
    )


def carries(seen: Activity) -> list[Carry]:
    """The norms of every cell's state, step by step."""
    return [Carry(cell, _norms(steps)) for cell, steps in seen.steps.items()]


def _norms(steps: list[CellStep]) -> list[list[float]]:
    parts = [i for i, part in enumerate(steps[0].state) if part.ndim == VECTOR]
    return [[step.state[i].norm(dim=-1).mean().item() for step in steps] for i in parts]
