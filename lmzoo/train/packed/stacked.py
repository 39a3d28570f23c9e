"""One row of numbers per member: weights, gradients and the optimiser's state.

    row p = [ θ_1 of member p | θ_2 | ... ]       all of P members: (P, N)

A parameter of all members is a slice of the columns, so the gradient's norm, clipping
and the optimiser work on whole rows, with torch's own optimiser and one parameter group
per member, or with its state (`adam.py`). A parameter that a member lacks (a cut path) is
a zero whose gradient is kept at zero. Rows are made from trainings and written back to
them: what lies on disk is the same as if nothing had been fused.
"""

import math
import operator
import weakref
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.packed.adam import StackedAdam
from lmzoo.train.trainer import Training

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

    def stacked(self, rows: Float[Tensor, "P N"]) -> dict[str, Tensor]:
        """Every parameter of all members, member first, where it stands in the rows."""
        columns = rows.split(self.widths, dim=1)
        return {
            name: column[:, : math.prod(shape)].view(-1, *shape)
            for (name, shape), column in zip(self.shapes.items(), columns, strict=True)
        }


class StackedParameters:
    """The numbers of P trainings, and the optimiser that moves them."""

    def __init__(self, trainings: Sequence[Training], host: nn.Module) -> None:
        # Not kept alive: a training may hold what these rows belong to.
        self._trainings = [weakref.ref(training) for training in trainings]
        self.layout = Layout(host)
        self.values = torch.zeros(len(trainings), self.layout.length)
        self.gradients = torch.zeros_like(self.values)
        self.weights = self.layout.stacked(self.values)
        """Every parameter of all members; a loss is made of these."""
        for weight in self.weights.values():
            weight.requires_grad_()
        self._slopes = list(self.layout.stacked(self.gradients).values())
        each = [dict(training.model.named_parameters()) for training in trainings]
        self._there = [
            (name, p, parameters[name])
            for name in self.layout.shapes
            for p, parameters in enumerate(each)
            if name in parameters
        ]
        self.moved = self._moved()
        """One where a member has a parameter, zero where it lacks it; None if none lacks any."""
        self._rows = [nn.Parameter(row) for row in self.values.unbind()]
        for row, gradient in zip(self._rows, self.gradients, strict=True):
            row.grad = gradient
        groups = [
            {"params": [row], "lr": t.recipe.lr, "weight_decay": t.recipe.weight_decay}
            for row, t in zip(self._rows, trainings, strict=True)
        ]
        self.optimiser = make_optimiser(trainings[0].recipe, groups)
        compiled = StackedAdam.moves(self.optimiser, self.values)
        self.adam = StackedAdam(self.optimiser, self.values) if compiled else None
        self.read()

    @property
    def trainings(self) -> list[Training]:
        """Whose numbers these are; somebody else has to keep them."""
        found = [training for one in self._trainings if (training := one()) is not None]
        assert len(found) == len(self._trainings), "members of this company are gone"
        return found

    def belong_to(self, trainings: Sequence[Training]) -> bool:
        """Whether these are theirs, in this order."""
        held = [one() for one in self._trainings]
        return len(held) == len(trainings) and all(map(operator.is_, held, trainings))

    def differentiate(self, loss: Float[Tensor, ""], *, pile: bool) -> None:
        """Put the loss's gradients in place of those that are there, or `pile` them on these."""
        found = torch.autograd.grad(loss, list(self.weights.values()), materialize_grads=True)
        (_add if pile else _copy)(self._slopes, list(found))
        if self.moved is not None:
            self.gradients *= self.moved

    @torch.no_grad()
    def read(self) -> None:
        """Take in weights and optimiser state of the trainings, into the same memory."""
        _copy(self._parts(self.values), [parameter for *_, parameter in self._there])
        # All parameters of a training have made the same steps; one that is fresh stays fresh.
        states = self._states()
        going = {p: state for (_, p, _), state in zip(self._there, states, strict=True) if state}
        for key in next(iter(going.values()), {}):
            found = torch.zeros_like(self.values)
            if key != "step":
                pairs = list(zip(self._parts(found), states, strict=True))
                _copy([part for part, one in pairs if one], [one[key] for _, one in pairs if one])
            for p, state in going.items():
                held = self.optimiser.state[self._rows[p]]
                value = state[key] if key == "step" else found[p]
                held[key] = held[key].copy_(value) if key in held else value.clone()
        for p in set(range(len(self._rows))) - going.keys():
            for value in self.optimiser.state.get(self._rows[p], {}).values():
                value.zero_()  # of rows that had gone on before their training began again

    @torch.no_grad()
    def write_back(self) -> None:
        """Hand weights and optimiser state back to the trainings, each its own copy."""
        for group, training in zip(self.optimiser.param_groups, self.trainings, strict=True):
            assert training.optimiser is not None
            training.optimiser.param_groups[0]["lr"] = group["lr"]
        given = self._parts(self.values)
        into: list[Tensor] = [parameter for *_, parameter in self._there]
        held = [self.optimiser.state[row] for row in self._rows]
        states = self._states()
        for key in held[0]:
            values = [state[key] for state in held]
            if key == "step":
                parts = [values[p] for _, p, _ in self._there]
            else:
                parts = self._parts(torch.stack(values))
            for state, part in zip(states, parts, strict=True):
                if key not in state:
                    state[key] = torch.empty_like(part)
                into.append(state[key])
            given += parts
        _copy(into, given)

    def _moved(self) -> Float[Tensor, "P N"] | None:
        if len(self._there) == len(self.trainings) * len(self.layout.shapes):
            return None
        moved = torch.zeros_like(self.values)
        for part in self._parts(moved):
            part.fill_(1)
        return moved

    def _parts(self, rows: Float[Tensor, "P N"]) -> list[Tensor]:
        """The parts of rows that are the trainings' parameters, in the order of these."""
        columns = {name: column.unbind() for name, column in self.layout.stacked(rows).items()}
        return [columns[name][p] for name, p, _ in self._there]

    def _states(self) -> list[dict[str, Tensor]]:
        """What the trainings' optimisers hold of each parameter; of a fresh one nothing yet."""
        states = [training.optimiser.state for training in self.trainings if training.optimiser]
        return [states[p][parameter] for _, p, parameter in self._there]


def _copy(into: list[Tensor], given: list[Tensor]) -> None:
    """All in one call: a call for each would take several times as long as the copies."""
    torch._foreach_copy_(into, given)  # pyright: ignore[reportPrivateImportUsage]


def _add(into: list[Tensor], given: list[Tensor]) -> None:
    torch._foreach_add_(into, given)  # pyright: ignore[reportPrivateImportUsage]
