"""A kernel equals the naive scan in outputs and gradients, for every variant."""

import torch

from lmzoo.cells.base import CELLS
from lmzoo.kernels import dispatch
from lmzoo.kernels.cpu import blas
from tests.cases import parametrize
from tests.kernels.variants import EXAMPLES, agree, build, data, mutants, results, variants
from tests.tiny import FINE, assert_equal_double

SINGLE = 1e-5

KERNEL_CELLS = {"mgu", "mgru", "gru", "lstm", "rnn", "janet"}


def double(config):
    """Return a cell in float64."""
    return build(CELLS.parse(config), torch.float64)


@parametrize("name", list(CELLS))
def test_every_fast_scan_equals_the_loop_over_steps(name):
    """`tests/cells/test_scans.py` has every cut."""
    cell = double(name)
    x, start = data(cell, 2, 19)
    if cell.fast_scan(x, start) is None:
        assert name not in KERNEL_CELLS
    else:
        agree(cell, FINE, x, start)


READING = {"mgu": 92, "mgru": 60}
"""How many variants read their inputs."""


@parametrize(("name", "reading"), READING.items())
def test_every_variant_is_tested(name, reading):
    cells = [build(config, torch.float64) for config in mutants(name)]
    blind = [cell.input_blind for cell in cells]
    assert blind.count(False) == reading


VARIED = sorted(KERNEL_CELLS) + ["lstm_peephole"]


@parametrize("name", VARIED)
def test_every_variant_in_double_precision(name):
    for config in variants(name):
        cell = build(config, torch.float64)
        x, start = data(cell)
        agree(cell, FINE, x, start)


def test_the_clipped_logit_gate_has_zero_gradient():
    clipped = {"name": "mgru", "mutations": [4, 6, 9]}
    cell = double(clipped)
    x, start = data(cell)
    # The logits of 0 and 1 are infinite.
    start[0] = 0.0
    start[1] = 1.0
    fast = results(cell, x, start, fast=True)[2]
    naive = results(cell, x, start, fast=False)[2]
    assert fast.isfinite().all()
    assert_equal_double(fast, naive)


# One step, one sequence, and more of both.
SIZES = [(1, 1), (1, 7), (40, 1), (12, 30)]


@parametrize("fields", EXAMPLES, ids=str)
def test_every_size_in_single_precision(fields):
    config = CELLS.parse(fields)
    for count, length in SIZES:
        cell = build(config, torch.float32, width=9)
        x, start = data(cell, count, length)
        agree(cell, SINGLE, x, start)


def assert_scans_naively(fields):
    cell = double(fields)
    x, start = data(cell)
    assert cell.fast_scan(x, start) is None
    expected = cell.naive_scan(x, start)
    assert cell.scan(x, start).equal(expected)


WITHOUT = [
    {"name": "mgru", "carry": "prior"},
    {"name": "gru", "reset": "input"},
]


@parametrize("fields", WITHOUT, ids=str)
def test_a_variant_without_a_kernel_scans_naively(fields):
    assert_scans_naively(fields)


@parametrize("fields", EXAMPLES, ids=str)
def test_cells_scan_naively_without_blas_routines(fields, monkeypatch):
    monkeypatch.setattr(blas, "HAS_PRODUCTS", False)
    assert_scans_naively(fields)


@parametrize("fields", EXAMPLES, ids=str)
def test_cells_scan_naively_where_kernels_reject_the_tensors(fields, monkeypatch):
    """As they do those of a GPU."""
    monkeypatch.setattr(dispatch, "DTYPES", set())
    assert_scans_naively(fields)
