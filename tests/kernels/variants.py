"""All distinct variants of the cells with a fast scan, and results of both scans."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.laws.tiny import assert_close
from tests.cases import rows
from tests.cells.support import subsets

ATTENTION = {10, 11}
"""Switches of the MGRU with attention, which has only a naive scan."""

OTHER_CONFIGS: list[dict[str, Any]] = rows("kernels/cases.toml", "variants")
EXAMPLES: list[dict[str, Any]] = rows("kernels/cases.toml", "examples")


@cache
def mutants(name: str) -> tuple[Any, ...]:
    """Return the config of every set of switch numbers; equal functions appear once."""
    configs = {}
    for numbers in subsets({"mgu": 8, "mgru": 12}[name]):
        if name == "mgru" and ATTENTION & set(numbers):
            continue
        try:
            configs[CELLS.parse({"name": name, "mutations": numbers})] = None
        except UserError:
            continue  # the state would always be zero
    return tuple(configs)


def variants(name: str) -> list[Any]:
    """Return the configs of all variants of a cell."""
    if name in ("mgu", "mgru"):
        return list(mutants(name))
    found = []
    for config in OTHER_CONFIGS:
        if config["name"] == name:
            found.append(CELLS.parse(config))
    return found


def build(config, dtype: torch.dtype, width: int = 5, length: int = 4, seed: int = 0) -> Cell:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CELLS.build(config, width, length).to(dtype)


def results(cell: Cell, x: Tensor | TokenInputs, start: Tensor, *, fast: bool) -> list[Tensor]:
    """Return outputs, and gradients of x (or its table), start and every weight of a sum."""
    start = start.clone().requires_grad_()
    if isinstance(x, Tensor):
        vectors = x.clone().requires_grad_()
        x = vectors
    else:
        vectors = x.table.clone().requires_grad_()
        x = TokenInputs(x.tokens, vectors)
    inputs = [vectors, start, *cell.parameters()]
    scan = cell.naive_scan
    if fast:
        scan = cell.fast_scan
    y = scan(x, start)
    assert y is not None
    # Different weights, so that no two outputs can be exchanged.
    weighting = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=y.dtype)
    # The added zero keeps a control differentiable that depends on none of its inputs.
    zero = 0 * sum(tensor.sum() for tensor in inputs)
    loss = (y * weighting).sum() + zero
    return [y.detach(), *torch.autograd.grad(loss, inputs)]


def agree(cell: Cell, tolerance: float, x: Tensor | TokenInputs, start: Tensor):
    """Assert that both scans have the same outputs and gradients, in relation to the largest."""
    fast = results(cell, x, start, fast=True)
    naive = results(cell, x, start, fast=False)
    names = ["outputs", "inputs", "start"]
    names += [name for name, _ in cell.named_parameters()]
    for name, actual, expected in zip(names, fast, naive, strict=True):
        assert expected.isfinite().all(), f"{name} of {cell.config}"
        scale = 1.0
        if expected.numel():
            scale = 1 + expected.abs().max()
        assert_close(actual / scale, expected / scale, tolerance, f"{name} of {cell.config}")


def data(cell: Cell, count: int = 3, length: int = 4) -> tuple[Tensor, Tensor]:
    """Return random inputs and a start in [0, 1], in the cell's dtype or float64."""
    generator = torch.Generator().manual_seed(1)
    # A cell without parameters has no dtype.
    first = next(cell.parameters(), torch.zeros(0, dtype=torch.float64))
    options = {"generator": generator, "dtype": first.dtype}
    x = torch.randn(count, length, cell.width, **options)
    return x, torch.rand(count, cell.num_state_vectors * cell.width, **options)
