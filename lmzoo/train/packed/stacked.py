"""Stacked parameters: weights, gradients and optimiser state of all pack members.

    row p of a (P, N) matrix = [ θ_1 of member p | θ_2 of member p | ... ]

One parameter of all members is a slice of columns. The gradient norm, clipping and the optimiser
work on whole rows: torch's optimiser with one parameter group per member, or `adam.py`, which uses
its state. A parameter that a member lacks (a cut path) is zero, and its gradient is kept at zero.
The rows are read from the trainings and written back to them, so checkpoints do not show that a
training was packed.
"""

import math
import operator
import weakref
from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.kernels.dispatch import has_gpu_kernels
from lmzoo.train.packed.adam import StackedAdam
from lmzoo.train.recipe import make_optimiser
from lmzoo.train.trainer import Training

ALIGN = 16
"""Every parameter starts at a multiple of this number of elements: a cache line."""

T = TypeVar("T")


class Layout:
    """The columns of each parameter of the template model."""

    def __init__(self, template: nn.Module) -> None:
        self.shapes = {name: p.shape for name, p in template.named_parameters()}
        self.widths = [-(-shape.numel() // ALIGN) * ALIGN for shape in self.shapes.values()]

    @property
    def length(self) -> int:
        """N, the number of columns."""
        return sum(self.widths)

    def views(self, matrix: Float[Tensor, "P N"]) -> dict[str, Tensor]:
        """Return a view (P, *shape) of the matrix for each parameter, by its name."""
        columns = matrix.split(self.widths, dim=1)
        return {
            name: column[:, : math.prod(shape)].view(-1, *shape)
            for (name, shape), column in zip(self.shapes.items(), columns, strict=True)
        }


class StackedParameters:
    """The parameters of P trainings in one matrix, with their gradients and their optimiser."""

    def __init__(
        self, trainings: Sequence[Training], template: nn.Module, rows: int | None = None
    ) -> None:
        """Copy the state of the trainings, whose models have the template's parameters or fewer.

        With more `rows` than trainings the others are idle: they are copies of the first training,
        so that their numbers are as good as its own, and nothing of them is written back. Without
        `rows` there are none, and the members cannot be replaced (`replace`).
        """
        self.layout = Layout(template)
        self.values = torch.zeros(rows or len(trainings), self.layout.length)
        self.gradients = torch.zeros_like(self.values)
        self.weights = self.layout.views(self.values)
        """Every parameter, (P, *shape), by name; the loss is a function of these."""
        for weight in self.weights.values():
            weight.requires_grad_()
        self._zeros = self.values.new_zeros(len(self.values), ALIGN)
        self._ones = self.values.new_ones(len(self.values))
        self._gradient_views = list(self.layout.views(self.gradients).values())
        self._set_members(trainings)
        has_all = len(self._entries) == len(self.values) * len(self.layout.shapes)
        self.mask = None if has_all and rows is None else self._make_mask()
        """1 where a member has a parameter, 0 where it lacks it; None if no member lacks any."""
        self._rows = [nn.Parameter(row) for row in self.values.unbind()]
        for row, gradient in zip(self._rows, self.gradients, strict=True):
            row.grad = gradient
        groups = [
            {"params": [row], "lr": t.recipe.lr, "weight_decay": t.recipe.weight_decay}
            for row, t in zip(self._rows, self.row_trainings, strict=True)
        ]
        self.optimiser = make_optimiser(trainings[0].recipe, groups)
        is_adam = isinstance(self.optimiser, torch.optim.Adam)
        self.adam = StackedAdam(self.optimiser, self.values) if is_adam else None
        self.read()

    @property
    def trainings(self) -> list[Training]:
        """The trainings, which the caller must keep alive."""
        trainings = [training for ref in self._trainings if (training := ref()) is not None]
        assert len(trainings) == len(self._trainings), "a pack member was deleted"
        return trainings

    @property
    def row_trainings(self) -> list[Training]:
        """The training of each row; that of an idle row is the first one."""
        trainings = self.trainings
        return [*trainings, *[trainings[0]] * (len(self.values) - len(trainings))]

    def replace(self, trainings: Sequence[Training]) -> None:
        """Give the rows to other trainings; all tensors stay at their addresses."""
        assert self.mask is not None
        assert self.adam is not None, "the other optimisers keep the settings of members in groups"
        self._set_members(trainings)
        self.mask.copy_(self._make_mask())
        self.values.detach().zero_()  # a parameter that a member lacks is zero
        self.adam.set_decays([t.recipe.weight_decay for t in self.row_trainings])
        self.read()

    def belongs_to(self, trainings: Sequence[Training]) -> bool:
        """Whether the rows are those of these trainings, in this order."""
        own = [ref() for ref in self._trainings]
        return len(own) == len(trainings) and all(map(operator.is_, own, trainings))

    def differentiate(self, losses: Float[Tensor, "P"], *, accumulate: bool) -> None:
        """Compute the gradients of the losses; add them to the present ones if `accumulate`."""
        weights = list(self.weights.values())
        gradients = torch.autograd.grad(losses, weights, self._ones, materialize_grads=True)
        if has_gpu_kernels(self.gradients) and not accumulate:
            self._join(gradients)
        else:
            (_add if accumulate else _copy)(self._gradient_views, list(gradients))
        if self.mask is not None:
            self.gradients *= self.mask

    def _join(self, gradients: Sequence[Tensor]) -> None:
        """Write all gradients by one launch; a copy of each would be a launch per parameter."""
        columns = [gradient.flatten(1) for gradient in gradients]
        pairs = zip(columns, self.layout.widths, strict=True)
        parts = [part for c, w in pairs for part in (c, self._zeros[:, : w - c.shape[1]])]
        torch.cat([part for part in parts if part.numel()], dim=1, out=self.gradients)

    @torch.no_grad()
    def read(self) -> None:
        """Copy weights and optimiser state from the trainings, into the addresses of recordings."""
        _copy(self._parts(self.values), [parameter for *_, parameter in self._entries])
        # All parameters of a training have made the same number of steps, or none has state yet.
        states = self._states()
        started = {p: s for (_, p, _), s in zip(self._entries, states, strict=True) if s}
        for key in next(iter(started.values()), {}):
            matrix = torch.zeros_like(self.values)
            if key != "step":
                pairs = list(zip(self._parts(matrix), states, strict=True))
                _copy([part for part, s in pairs if s], [s[key] for _, s in pairs if s])
            for p, state in started.items():
                row_state = self.optimiser.state[self._rows[p]]
                value = state[key] if key == "step" else matrix[p]
                if key in row_state:
                    row_state[key].copy_(value)
                else:
                    row_state[key] = value.clone()
        for p in set(range(len(self._rows))) - started.keys():
            for value in self.optimiser.state.get(self._rows[p], {}).values():
                value.zero_()  # the training was reset to its start

    @torch.no_grad()
    def read_best(self) -> None:
        """Copy the weights of the best epoch from the trainings; the next `read` undoes it."""
        best = [training.best_weights for training in self.row_trainings]
        _copy(self._parts(self.values), [best[p][name] for name, p, _ in self._entries])

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy weights and optimiser state to the trainings."""
        trainings = self.trainings
        for group, training in zip(self.optimiser.param_groups, trainings, strict=False):
            assert training.optimiser is not None
            training.optimiser.param_groups[0]["lr"] = group["lr"]
        sources = self._without_idle(self._parts(self.values))
        targets: list[Tensor] = self._without_idle([parameter for *_, parameter in self._entries])
        row_states = [self.optimiser.state[row] for row in self._rows]
        states = self._without_idle(self._states())
        for key in row_states[0]:
            values = [state[key] for state in row_states]
            if key == "step":
                parts = [values[p] for _, p, _ in self._entries]
            else:
                parts = self._parts(torch.stack(values))
            parts = self._without_idle(parts)
            for state, part in zip(states, parts, strict=True):
                if key not in state:
                    state[key] = torch.empty_like(part)
                targets.append(state[key])
            sources += parts
        _copy(targets, sources)

    def _set_members(self, trainings: Sequence[Training]) -> None:
        # Weak references, because a training may own the `PackedTrainer` that owns this object.
        self._trainings = [weakref.ref(training) for training in trainings]
        parameters = [dict(training.model.named_parameters()) for training in self.row_trainings]
        self._entries = [
            (name, p, own[name])
            for name in self.layout.shapes
            for p, own in enumerate(parameters)
            if name in own
        ]
        """(name, row, parameter) of every parameter that the training of a row has."""

    def _make_mask(self) -> Float[Tensor, "P N"]:
        mask = torch.zeros_like(self.values)
        for part in self._parts(mask):
            part.fill_(1)
        return mask

    def _parts(self, matrix: Float[Tensor, "P N"]) -> list[Tensor]:
        """Return the view of the matrix for each parameter in `_entries`."""
        columns = {name: view.unbind() for name, view in self.layout.views(matrix).items()}
        return [columns[name][p] for name, p, _ in self._entries]

    def _without_idle(self, items: Sequence[T]) -> list[T]:
        """Return the items, one for each of `_entries`, that do not belong to an idle row."""
        pairs = zip(items, self._entries, strict=True)
        return [item for item, (_, p, _) in pairs if p < len(self._trainings)]

    def _states(self) -> list[dict[str, Tensor]]:
        """Return the optimiser state of each parameter in `_entries`; empty before a first step."""
        states = [t.optimiser.state for t in self.row_trainings if t.optimiser]
        return [states[p][parameter] for _, p, parameter in self._entries]


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy all tensors in one call; separate calls would take several times as long."""
    torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]


def _add(targets: list[Tensor], sources: list[Tensor]) -> None:
    torch._foreach_add_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
