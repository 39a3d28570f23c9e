"""A fast scan is the loop over `step`: outputs and gradients, for every variant."""

import gc
from typing import Any

import pytest
import torch

from lmzoo.cells.base import CELLS, Cell
from lmzoo.kernels.scan.gradients import Gradients, Steps
from tests.kernels.scan.variants import ONE_EACH, build, data, mutants, results, variants
from tests.laws.ask import same
from tests.tiny import FINE

SINGLE = 1e-5

OFFERED = {"mgu", "mgru", "gru", "lstm", "rnn"}

pytestmark = pytest.mark.usefixtures("either_way")


def agree(cell: Cell, tolerance: float, count: int = 3, length: int = 4) -> None:
    x, start = data(cell, count, length)
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    names = ["outputs", "inputs", "start", *(name for name, _ in cell.named_parameters())]
    for name, mine, theirs in zip(names, fast, naive, strict=True):
        scale = 1 + theirs.abs().max()
        same(mine / scale, theirs / scale, tolerance, f"{name} of {cell.config}")


def test_exactly_these_cells_have_a_fast_scan() -> None:
    offered = set()
    for name in CELLS:
        cell = build(CELLS.read(name), torch.float64)
        if cell.fast_scan(*data(cell)) is not None:
            offered.add(name)
    assert offered == OFFERED


def test_no_variant_is_missing() -> None:
    seeing = [
        sum(not build(config, torch.float64).input_blind for config in mutants(name))
        for name in ("mgu", "mgru")
    ]
    assert seeing[0] == 92
    assert seeing[1] == 60


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_every_variant_in_double_precision(name: str) -> None:
    for config in variants(name):
        agree(build(config, torch.float64), FINE)


@pytest.mark.parametrize("fields", ONE_EACH, ids=str)
@pytest.mark.parametrize(("count", "length"), [(1, 1), (1, 7), (40, 1), (12, 30)])
def test_every_size_in_single_precision(fields: dict[str, Any], count: int, length: int) -> None:
    agree(build(CELLS.read(dict(fields)), torch.float32, width=9), SINGLE, count, length)


@pytest.mark.parametrize("fields", ONE_EACH, ids=str)
def test_gradients_are_those_of_finite_differences(fields: dict[str, Any]) -> None:
    cell = build(CELLS.read(dict(fields)), torch.float64, width=2, length=3)
    x, start = (one.requires_grad_() for one in data(cell, 2, 3))

    def outputs(x: torch.Tensor, start: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return cell.scan(x, start)

    assert torch.autograd.gradcheck(outputs, (x, start, *cell.parameters()))


def test_the_logit_gate_has_no_slope_where_it_is_clipped() -> None:
    cell = build(CELLS.read({"name": "mgru", "mutations": [4, 6, 9]}), torch.float64)
    x, start = data(cell)
    start[0], start[1] = 0.0, 1.0
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    same(fast[2], naive[2], FINE, "gradient of a start at the clip")
    assert fast[2].isfinite().all()


def test_what_has_no_fast_scan_falls_to_the_loop() -> None:
    for fields in ({"name": "mgru", "carry": "prior"}, {"name": "gru", "reset": "input"}):
        cell = build(CELLS.read(fields), torch.float64)
        x, start = data(cell)
        assert cell.fast_scan(x, start) is None
        same(cell.scan(x, start), cell.naive_scan(x, start), 0, "outputs")


@pytest.mark.parametrize("fields", ONE_EACH, ids=str)
def test_nothing_of_a_sweep_waits_for_the_garbage_collector(fields: dict[str, Any]) -> None:
    cell = build(CELLS.read(dict(fields)), torch.float32)
    x, start = (one.float() for one in data(cell))

    def sweep() -> None:
        cell.scan(x.clone().requires_grad_(), start).sum().backward()

    sweep()  # what compiles a loop leaves its frames to the collector
    gc.collect()
    gc.disable()
    try:
        sweep()
        left = [one for one in gc.get_objects() if type(one) in (Gradients, Steps)]
    finally:
        gc.enable()
    assert not left
