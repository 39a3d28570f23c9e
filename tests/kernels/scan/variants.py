"""Every distinct variant of a cell that has a fast scan, and its two scans."""

import itertools
from functools import cache
from typing import Any

import torch
from torch import Tensor

from lmzoo.cells.base import CELLS, Cell
from lmzoo.errors import UserError
from tests.cells.run import subsets

ATTENTION = {10, 11}
"""Switches of the MGRU that carry attention: those have the naive loop only."""

OTHERS: list[dict[str, Any]] = [
    *(
        {"name": "gru", "reset": reset, "update": update}
        for reset, update in itertools.product(("after", "before"), ("z_keeps", "z_writes"))
    ),
    *({"name": "lstm", "forget": forget} for forget in ("gate", "none", "coupled")),
    *({"name": "rnn", "activation": act} for act in ("tanh", "sigmoid", "relu", "identity")),
]

ONE_EACH: list[dict[str, Any]] = [
    {"name": "mgu"},
    {"name": "mgu", "cuts": [7]},
    {"name": "mgru", "mutations": [4, 6, 9]},
    {"name": "gru"},
    {"name": "gru", "reset": "before"},
    {"name": "lstm"},
    {"name": "rnn"},
]


@cache
def mutants(name: str) -> tuple[Any, ...]:
    """Every config that a set of the seed's numbers gives, each function once."""
    found = {}
    for numbers in subsets({"mgu": 8, "mgru": 12}[name]):
        if name == "mgru" and ATTENTION & set(numbers):
            continue
        try:
            found[CELLS.read({"name": name, "mutations": numbers})] = None
        except UserError:
            continue  # the state would be zero
    return tuple(found)


def variants(name: str) -> list[Any]:
    """The configs of all variants of a cell."""
    if name in ("mgu", "mgru"):
        return list(mutants(name))
    return [CELLS.read(dict(one)) for one in OTHERS if one["name"] == name]


def build(config: Any, dtype: torch.dtype, width: int = 5, length: int = 4, seed: int = 0) -> Cell:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CELLS.build(config, width, length).to(dtype)


def results(cell: Cell, x: Tensor, start: Tensor, *, fast: bool) -> list[Tensor]:
    """Outputs, and gradients of x, start and every weight under one random weighting."""
    x, start = x.clone().requires_grad_(), start.clone().requires_grad_()
    given = [x, start, *cell.parameters()]
    y = cell.fast_scan(x, start) if fast else cell.naive_scan(x, start)
    assert y is not None
    weighting = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=y.dtype)
    # A control may depend on nothing; the zero keeps it differentiable.
    loss = (y * weighting).sum() + 0 * sum(one.sum() for one in given)
    return [y.detach(), *torch.autograd.grad(loss, given)]


def data(cell: Cell, count: int = 3, length: int = 4) -> tuple[Tensor, Tensor]:
    """Random inputs and a start in [0, 1], of the cell's dtype; double where it has no weights."""
    generator = torch.Generator().manual_seed(1)
    options: dict[str, Any] = {
        "generator": generator,
        "dtype": next(cell.parameters(), torch.zeros(0, dtype=torch.float64)).dtype,
    }
    x = torch.randn(count, length, cell.width, **options)
    return x, torch.rand(count, cell.parts * cell.width, **options)
