"""The state of a pack member as rows: one for its weights, and one for each optimiser state.

    row = [ θ_1 | θ_2 | ... ]        its columns are those of the template model's parameters

After an epoch of a pack, the weights of a training and its optimiser state are views of such rows.
To copy the state of all members, on the device or to the host, is then one operation for each kind
of number, not one for each tensor.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.kernels.device import CPU

ALIGN = 16
"""Every parameter starts at a multiple of this number of elements: a cache line."""
VALUES = "values"
STEP = "step"
"""The weights; the steps of the optimiser, of which each parameter has its own number."""
PackRows = Float[Tensor, "P N"]
PerMember = Float[Tensor, "P"]


class Layout:
    """The columns of each parameter of the template model."""

    def __init__(self, template: nn.Module):
        self.shapes: dict[str, torch.Size] = {}
        self.widths = []
        for name, parameter in template.named_parameters():
            self.shapes[name] = parameter.shape
            lines = math.ceil(parameter.numel() / ALIGN)
            self.widths.append(lines * ALIGN)

    def places(self) -> list[tuple[str, list[int], int]]:
        """Return name, shape and first column of each parameter."""
        found = []
        begin = 0
        for name, width in zip(self.shapes, self.widths, strict=True):
            found.append((name, list(self.shapes[name]), begin))
            begin += width
        return found

    @property
    def length(self) -> int:
        """N, the number of columns."""
        return sum(self.widths)

    def views(self, matrix: PackRows) -> dict[str, Tensor]:
        """Return a view (P, *shape) of the matrix for each parameter, by its name."""
        columns = matrix.split(self.widths, dim=1)
        found = {}
        for name, column in zip(self.shapes, columns, strict=True):
            shape = self.shapes[name]
            numbers = column[:, : shape.numel()]
            found[name] = numbers.view(matrix.shape[:1] + shape)
        return found

    def columns(self, names: Sequence[Collection[str]]) -> Bool[Tensor, "P N"]:
        """Return which columns belong to parameters of these names, for each member."""
        rows = [[name in own for name in self.shapes] for own in names]
        has = torch.tensor(rows, device=CPU)
        widths = torch.tensor(self.widths, device=CPU)
        return has.repeat_interleave(widths, dim=1)

    def split(self, key: str, matrix: Tensor) -> dict[str, tuple[Tensor, ...]]:
        """Return the tensors of each parameter, one for each member; steps have one column each."""
        if key == STEP:
            views = dict(zip(self.shapes, matrix.unbind(1), strict=True))
        else:
            views = self.views(matrix)
        return {name: view.unbind() for name, view in views.items()}

    def named(self, key: str, row: Any) -> dict[str, Tensor]:
        """Return views of one row, an array of the host, by the parameters' names."""
        matrix = torch.from_numpy(row)[None]
        rows = self.split(key, matrix)
        return {name: members[0] for name, members in rows.items()}

    def pieces(self, tensors: Mapping[str, Tensor], zeros: Float[Tensor, "N"]) -> list[Tensor]:
        """Return what joins to a row: the tensors by name, 0 where one is missing."""
        pieces = []
        for name, width in zip(self.shapes, self.widths, strict=True):
            if name in tensors:
                piece = tensors[name].detach().reshape(-1)
                pieces.append(piece)
                # Columns are padded to `ALIGN`, and a member may lack a parameter: zeros, which
                # stay zero.
                width -= len(piece)
            if width:
                pieces.append(zeros[:width])
        return pieces


@dataclass(eq=False)
class Row:
    """The rows that the weights and the optimiser state of a training are views of."""

    layout: Layout
    numbers: dict[str, Tensor]
    """`VALUES`, `STEP` and the other keys of the optimiser's state -> row."""
    names: list[str]
    """The parameters of the training, which the template may exceed."""
    state: list[str]
    """The names of the model's state in its order."""
    buffers: dict[str, Tensor]
    """The buffers of the model, which no pack changes."""
    matrices: dict[str, Any]
    """The numbers of all members after the last epoch of the pack, as arrays in the memory of the
    host. Nothing changes them, so that a thread may write them during the next epoch."""
    index: int
    """The row of this training in them."""

    def best(self) -> "HostRow":
        """Return a copy of the weights in the memory of the host."""
        # A view would keep the matrix of all members in memory.
        values = self.matrices[VALUES][self.index].copy()
        return HostRow(self.layout, self.state, self.buffers, values)

    def optimiser_state(self) -> dict[int, dict[str, Tensor]]:
        """Return the state of each parameter by its number, views of the arrays of the host."""
        found = {}
        for key, matrix in self.matrices.items():
            if key == VALUES:
                continue
            numbers = self.layout.named(key, matrix[self.index])
            for place, name in enumerate(self.names):
                state = found.setdefault(place, {})
                state[key] = numbers[name]
        return found


@dataclass(frozen=True)
class HostRow:
    """The weights of a training in the memory of the host."""

    layout: Layout
    state: list[str]
    buffers: dict[str, Tensor]
    values: Any

    def weights(self) -> dict[str, Tensor]:
        """Return the state of the model: views of the row."""
        own = self.layout.named(VALUES, self.values)
        found = {}
        for name in self.state:
            if name in own:
                found[name] = own[name]
            else:
                # Buffers that all rows share, so a row must not be able to change them.
                found[name] = self.buffers[name].clone()
        return found
