"""Cells in float64 on random inputs, and sets of switches."""

import torch
from torch import Tensor, nn

from lmzoo.cells.base import Cell, Weights
from lmzoo.laws.cells import COUNT as COUNT
from lmzoo.laws.cells import LENGTH, UNCUT_LAWS, WIDTH, build_cell, law_half_precision_lasts
from lmzoo.laws.cells import inputs as inputs

CHEAP_LAWS = [law for law in UNCUT_LAWS if law is not law_half_precision_lasts]
"""Without that of 2,000 tokens, which takes up to 20 seconds in a loop of equations."""


def make(name: str, width: int = WIDTH, length: int = LENGTH, seed: int = 0, **fields) -> Cell:
    """Build a cell in float64, with weights drawn from this seed."""
    return build_cell({"name": name, **fields}, width, length, seed)


LIBRARY = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@torch.no_grad()
def torch_layers(*cells: Cell, endings: tuple[str, ...] = ("l0",), **options) -> nn.RNNBase:
    """Return torch's module with the weights of these cells."""
    first = cells[0]
    width = first.width
    kind = LIBRARY[first.name]
    theirs = kind(width, width, batch_first=True, **options)
    # torch names a layer and a direction by the ending of its weights.
    for cell, ending in zip(cells, endings, strict=True):
        for name, weight in cell.w.named_parameters():
            parameter = theirs.get_parameter(f"{name}_{ending}")
            parameter.copy_(weight)
    weight = next(first.parameters())
    return theirs.to(weight.dtype)


def outputs(cell: Cell, seed: int = 1) -> Tensor:
    """Return the outputs of the cell for these inputs, (B, T, H)."""
    x, start = inputs(cell, seed=seed)
    with torch.no_grad():
        return cell.scan(x, start)


def own_weights(cell: nn.Module) -> set[str]:
    """Return the paths of weights with a published initialisation of their own."""
    paths = set()
    for path, module in cell.named_modules():
        if isinstance(module, Weights):
            paths |= {f"{path}.{name}" for name in module.own_draws}
    return paths


def trace(cell: Cell, x: Tensor, start: Tensor) -> list[Tensor]:
    """Return each tensor of the state after every step, (B, T, ..)."""
    state = cell.initial_state(start)
    states = []
    # Step by step, whatever the cell's scan does.
    for projected in cell.project(x).unbind(1):
        _, state = cell.step(projected, state)
        states.append(state)
    parts = zip(*states, strict=True)
    return [torch.stack(part, dim=1) for part in parts]


def subsets(numbers: int) -> list[tuple[int, ...]]:
    """Return all subsets of the switches 0..numbers-1, in the order of `bits`."""
    found = []
    for row in bits(numbers):
        numbers_on = row.nonzero().flatten()
        found.append(tuple(numbers_on.tolist()))
    return found


def bits(numbers: int) -> Tensor:
    """Return the same subsets as rows of a boolean table (2^n, n)."""
    # The first switch changes last.
    off_and_on = torch.tensor([False, True])
    return torch.cartesian_prod(*[off_and_on] * numbers)


def groups(values: Tensor, tolerance: float = 1e-9) -> list[int]:
    """Return for each row the index of the first row that equals it, up to the tolerance."""
    flat = values.flatten(1)
    distances = torch.cdist(flat, flat, p=torch.inf)
    # argmax returns the first of equal rows.
    equal = distances < tolerance
    first = equal.int().argmax(1)
    return first.tolist()
