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

OTHER_CONFIGS: list[dict[str, Any]] = [
    *({"name": "gru", "reset": reset} for reset in ("after", "before")),
    *(
        {"name": "gru", "reset": reset, "cuts": [cut]}
        for reset in ("after", "before")
        for cut in range(11)
    ),
    {"name": "gru", "cuts": [1, 4, 7]},
    {"name": "gru", "cuts": [0, 3, 6]},
    {"name": "janet"},
    *({"name": "lstm", "forget": forget} for forget in ("gate", "none", "coupled")),
    *(
        {"name": "lstm_peephole", "peephole": "diagonal", "gate_recurrence": gates, "cuts": cuts}
        for gates in (False, True)
        for cuts in ([], [0], [1], [2], [3], [4], [5], [6], [2, 4, 5, 6], [0, 1, 2])
    ),
    *({"name": "rnn", "activation": act} for act in ("tanh", "sigmoid", "relu", "identity")),
]
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
    return [CELLS.parse(dict(config)) for config in OTHER_CONFIGS if config["name"] == name]


def build(config: Any, dtype: torch.dtype, width: int = 5, length: int = 4, seed: int = 0) -> Cell:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CELLS.build(config, width, length).to(dtype)


def results(cell: Cell, x: Tensor | TokenInputs, start: Tensor, *, fast: bool) -> list[Tensor]:
    """Return outputs, and gradients of x (or its table), start and every weight of a sum."""
    vectors = (x if isinstance(x, Tensor) else x.table).clone().requires_grad_()
    if isinstance(x, Tensor):
        x = vectors
    else:
        x = TokenInputs(x.tokens, vectors)
    inputs = [vectors, start.clone().requires_grad_(), *cell.parameters()]
    if fast:
        y = cell.fast_scan(x, inputs[1])
    else:
        y = cell.naive_scan(x, inputs[1])
    assert y is not None
    weighting = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=y.dtype)
    # The added zero keeps a control differentiable that depends on none of its inputs.
    loss = (y * weighting).sum() + 0 * sum(tensor.sum() for tensor in inputs)
    return [y.detach(), *torch.autograd.grad(loss, inputs)]


def agree(cell: Cell, tolerance: float, x: Tensor | TokenInputs, start: Tensor) -> None:
    """Assert that both scans have the same outputs and gradients, in relation to the largest."""
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    names = ["outputs", "inputs", "start", *(name for name, _ in cell.named_parameters())]
    for name, actual, expected in zip(names, fast, naive, strict=True):
        assert expected.isfinite().all(), f"{name} of {cell.config}"
        scale = 1 + (expected.abs().max() if expected.numel() else 0)
        assert_close(actual / scale, expected / scale, tolerance, f"{name} of {cell.config}")


def data(cell: Cell, count: int = 3, length: int = 4) -> tuple[Tensor, Tensor]:
    """Return random inputs and a start in [0, 1], in the cell's dtype or float64."""
    generator = torch.Generator().manual_seed(1)
    options: dict[str, Any] = {
        "generator": generator,
        "dtype": next(cell.parameters(), torch.zeros(0, dtype=torch.float64)).dtype,
    }
    x = torch.randn(count, length, cell.width, **options)
    return x, torch.rand(count, cell.num_state_vectors * cell.width, **options)
