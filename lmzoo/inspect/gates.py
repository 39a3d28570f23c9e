r"""Statistics of the gates and states of a recurrent model.

    mean       E[g]                      over sequences, steps and units
    spread     √ E[(g − E g)²]
    saturated  share of g < 0.05 or g > 0.95, where σ' < 0.05 and almost no gradient passes
    state      ‖s_t‖ of each state vector at every step, mean over sequences

A gate that is always saturated is constant. A gate that is always near ½ only averages.

Source: S1, S4.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmzoo.inspect.hooks import Activity, CellStep

LOW, HIGH = 0.05, 0.95
"""A gate below LOW or above HIGH is saturated."""

VECTOR_NDIM = 2
"""Axes of a state vector, (B, H). State tensors with more axes grow with the sequence."""


@dataclass(frozen=True)
class Gate:
    """Statistics of one gate of one cell."""

    cell: str
    name: str
    mean: float
    spread: float
    saturated: float


@dataclass(frozen=True)
class StateNorms:
    """Norms of the state of one cell."""

    cell: str
    norms: list[list[float]]
    """For each state vector, h first: the norm at every step."""


def gates(activity: Activity) -> list[Gate]:
    """Return the statistics of every gate of every cell that ran."""
    found = []
    for cell, steps in activity.cell_steps.items():
        for name in steps[0].gates:
            values = torch.cat([step.gates[name].flatten() for step in steps]).double()
            found.append(_gate(cell, name, values))
    return found


def _gate(cell: str, name: str, values: Tensor) -> Gate:
    saturated = (values < LOW) | (values > HIGH)
    return Gate(
        cell,
        name,
        mean=values.mean().item(),
        spread=values.std(correction=0).item(),
        saturated=saturated.double().mean().item(),
    )


def state_norms(activity: Activity) -> list[StateNorms]:
    """Return the norms of the state vectors of every cell that ran."""
    return [StateNorms(cell, _norms(steps)) for cell, steps in activity.cell_steps.items()]


def _norms(steps: list[CellStep]) -> list[list[float]]:
    vectors = [i for i, part in enumerate(steps[0].state) if part.ndim == VECTOR_NDIM]
    return [[step.state[i].norm(dim=-1).mean().item() for step in steps] for i in vectors]
