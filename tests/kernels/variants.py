"""All distinct variants of the cells with a fast scan, and results of both scans."""

from functools import cache

import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.laws.tiny import assert_close
from tests.cases import rows
from tests.cells.support import subsets

SWITCHES = {"mgu": 8, "mgru": 12}
ATTENTION = {10, 11}
"""Switches of the MGRU with attention, which has only a naive scan."""

OTHER_CONFIGS = rows("kernels/cases.toml", "variants")
EXAMPLES = rows("kernels/cases.toml", "examples")


@cache
def mutants(name):
    """Return the config of every set of switch numbers; equal functions appear once."""
    configs = {}
    for numbers in subsets(SWITCHES[name]):
        if name == "mgru" and ATTENTION & set(numbers):
            continue
        fields = {"name": name, "mutations": numbers}
        try:
            config = CELLS.parse(fields)
        except UserError:
            continue  # the state would always be zero
        configs[config] = None
    return tuple(configs)


def variants(name):
    """Return the configs of all variants of a cell."""
    # All sets of switches of these two are tried.
    if name in SWITCHES:
        return list(mutants(name))
    found = []
    for config in OTHER_CONFIGS:
        if config["name"] == name:
            found.append(CELLS.parse(config))
    return found


def build(config, dtype, width=5, length=4, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        cell = CELLS.build(config, width, length)
    return cell.to(dtype)


def results(cell, x, start, *, fast):
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
    generator = torch.Generator().manual_seed(7)
    weighting = torch.randn(y.shape, generator=generator, dtype=y.dtype)
    # The added zero keeps a control differentiable that depends on none of its inputs.
    zero = 0 * sum(tensor.sum() for tensor in inputs)
    loss = (y * weighting).sum() + zero
    gradients = torch.autograd.grad(loss, inputs)
    return [y.detach()] + list(gradients)


def agree(cell, tolerance, x, start):
    """Assert that both scans have the same outputs and gradients, in relation to the largest."""
    fast = results(cell, x, start, fast=True)
    naive = results(cell, x, start, fast=False)
    names = ["outputs", "inputs", "start"]
    names += [name for name, _ in cell.named_parameters()]
    for name, actual, expected in zip(names, fast, naive, strict=True):
        label = f"{name} of {cell.config}"
        assert expected.isfinite().all(), label
        scale = 1.0
        if expected.numel():
            # Relative to the largest number, absolute if all are small.
            scale = 1 + expected.abs().max()
        actual = actual / scale
        assert_close(actual, expected / scale, tolerance, label)


def data(cell, count=3, length=4):
    """Return random inputs and a start in [0, 1], in the cell's dtype or float64."""
    generator = torch.Generator().manual_seed(1)
    # A cell without parameters has no dtype.
    usual = torch.zeros(0).double()
    first = next(cell.parameters(), usual)
    options = {"generator": generator, "dtype": first.dtype}
    x = torch.randn(count, length, cell.width, **options)
    size = cell.num_state_vectors * cell.width
    return x, torch.rand(count, size, **options)
