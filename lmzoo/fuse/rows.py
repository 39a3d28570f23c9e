"""One row of numbers per member: weights, gradients and the optimiser's state.

    row p = [ θ_1 of member p | θ_2 | ... ]       all of P members: (P, N)

A parameter of all members is a slice of the columns, so the gradient's norm, clipping
and the optimiser work on whole rows, with torch's own optimiser and one parameter group
per member, or with its state (`adam.py`). A parameter that a member lacks (a cut path) is
a zero whose gradient is kept at zero. Rows are made from trainings and written back to
them: what lies on disk is the same as if nothing had been fused.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.fit import Training
from lmzoo.fuse.adam import RowAdam
from lmzoo.optimisers import make_optimiser

ALIGN = 16
"""Every parameter starts at a multiple of so many numbers, that is, of a cache line."""


class Layout:
    """Where each parameter of the host stands in a row."""

    def __init__(self, host: nn.Module) -> None:
        self.shapes = {name: p.shape for name, p in host.named_parameters()}
        self.widths = [-(-shape.numel() // ALIGN) * ALIGN for shape in self.shapes.values()]

    @property
    def length(self) -> int:
        """N."""
        return sum(self.widths)

    def parts(self, row: Float[Tensor, "N"]) -> dict[str, Tensor]:
        """The parts of a row that are its parameters, each in its shape."""
        named = zip(self.shapes.items(), row.split(self.widths), strict=True)
        return {name: part[: shape.numel()].view(shape) for (name, shape), part in named}

    def stacked(self, rows: Float[Tensor, "P N"]) -> dict[str, Tensor]:
        """Every parameter of all members, member first."""
        columns = rows.split(self.widths, dim=1)
        return {
            name: column[:, : math.prod(shape)].unflatten(1, shape or (1,)).reshape(-1, *shape)
            for (name, shape), column in zip(self.shapes.items(), columns, strict=True)
        }


class Rows:
    """The numbers of P trainings, and the optimiser that moves them."""

    def __init__(self, trainings: Sequence[Training], host: nn.Module) -> None:
        self.trainings = trainings
        self.layout = Layout(host)
        self.values = torch.zeros(len(trainings), self.layout.length)
        self.gradients = torch.zeros_like(self.values)
        self.moved = torch.zeros_like(self.values)
        for moved, training in zip(self.moved, trainings, strict=True):
            parts = self.layout.parts(moved)
            for name, _ in training.model.named_parameters():
                parts[name].fill_(1)
        self.all_move = bool((self.moved == _present(self.layout)).all())
        self._rows = [nn.Parameter(row) for row in self.values.unbind()]
        for row, gradient in zip(self._rows, self.gradients, strict=True):
            row.grad = gradient
        groups = [
            {"params": [row], "lr": t.recipe.lr, "weight_decay": t.recipe.weight_decay}
            for row, t in zip(self._rows, trainings, strict=True)
        ]
        self.optimiser = make_optimiser(trainings[0].recipe, groups)
        compiled = RowAdam.moves(self.optimiser, self.values)
        self.adam = RowAdam(self.optimiser, self.values) if compiled else None
        self.read()

    @torch.no_grad()
    def read(self) -> None:
        """Take in weights and optimiser state of the trainings, into the same memory."""
        for row, training in zip(self.values, self.trainings, strict=True):
            parts = self.layout.parts(row)
            for name, parameter in training.model.named_parameters():
                parts[name].copy_(parameter)
        self._read_states()

    @torch.no_grad()
    def write_back(self) -> None:
        """Hand weights and optimiser state back to the trainings, each its own copy."""
        for row, group, training in zip(
            self._rows, self.optimiser.param_groups, self.trainings, strict=True
        ):
            optimiser = training.optimiser
            assert optimiser is not None
            optimiser.param_groups[0]["lr"] = group["lr"]
            held = dict(self.optimiser.state[row])
            step = held.pop("step")
            states = {key: self.layout.parts(value) for key, value in held.items()}
            values = self.layout.parts(row.detach())
            for name, parameter in training.model.named_parameters():
                parameter.copy_(values[name])
                kept = {key: parts[name].clone() for key, parts in states.items()}
                optimiser.state[parameter] = {"step": step.clone(), **kept}

    def _read_states(self) -> None:
        """Continue from the trainings' optimisers; one that is fresh stays fresh."""
        for row, training in zip(self._rows, self.trainings, strict=True):
            assert training.optimiser is not None
            states = {
                name: training.optimiser.state[parameter]
                for name, parameter in training.model.named_parameters()
                if parameter in training.optimiser.state
            }
            if states:
                held = self.optimiser.state[row]
                for key, value in self._row_state(states).items():
                    held[key] = held[key].copy_(value) if key in held else value

    def _row_state(self, states: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        one = next(iter(states.values()))
        # All parameters of a training have made the same steps.
        found = {"step": one["step"].clone()}
        for key in one.keys() - {"step"}:
            found[key] = torch.zeros(self.layout.length)
            parts = self.layout.parts(found[key])
            for name, state in states.items():
                parts[name].copy_(state[key])
        return found


def _present(layout: Layout) -> Float[Tensor, "N"]:
    """One wherever a row holds a parameter, zero between them."""
    row = torch.zeros(layout.length)
    for part in layout.parts(row).values():
        part.fill_(1)
    return row
