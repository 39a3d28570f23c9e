"""A kernel equals the naive scan in outputs and gradients, for every variant."""

import pytest
import torch

from lmzoo.cells.base import CELLS
from lmzoo.kernels import dispatch
from lmzoo.kernels.cpu import blas
from lmzoo.laws.tiny import assert_close
from tests.kernels.variants import EXAMPLES, agree, build, data, mutants, results, variants
from tests.tiny import FINE, assert_equal_double

SINGLE = 1e-5

KERNEL_CELLS = {"mgu", "mgru", "gru", "lstm", "rnn", "janet"}


@pytest.mark.parametrize("name", list(CELLS))
def test_every_fast_scan_equals_the_loop_over_steps(name):
    """`tests/cells/test_scans.py` has every cut."""
    cell = build(CELLS.parse(name), torch.float64)
    if cell.fast_scan(*data(cell)) is None:
        assert name not in KERNEL_CELLS
    else:
        agree(cell, FINE, *data(cell, 2, 19))


def test_every_variant_is_tested():
    counts = [
        sum(not build(config, torch.float64).input_blind for config in mutants(name))
        for name in ("mgu", "mgru")
    ]
    assert counts[0] == 92
    assert counts[1] == 60


@pytest.mark.parametrize("name", [*sorted(KERNEL_CELLS), "lstm_peephole"])
def test_every_variant_in_double_precision(name):
    for config in variants(name):
        cell = build(config, torch.float64)
        agree(cell, FINE, *data(cell))


def test_the_clipped_logit_gate_has_zero_gradient():
    cell = build(CELLS.parse({"name": "mgru", "mutations": [4, 6, 9]}), torch.float64)
    x, start = data(cell)
    start[0] = 0.0
    start[1] = 1.0
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    assert_equal_double(fast[2], naive[2])
    assert fast[2].isfinite().all()


@pytest.mark.parametrize("fields", EXAMPLES, ids=str)
def test_every_size_in_single_precision(fields):
    for count, length in ((1, 1), (1, 7), (40, 1), (12, 30)):
        cell = build(CELLS.parse(dict(fields)), torch.float32, width=9)
        agree(cell, SINGLE, *data(cell, count, length))


@pytest.mark.parametrize("reason", ["no variant", "no BLAS routines", "a GPU"])
def test_without_a_kernel_the_naive_scan_runs(reason, monkeypatch):
    if reason == "no BLAS routines":
        monkeypatch.setattr(blas, "HAS_PRODUCTS", False)
    if reason == "a GPU":  # kernels reject its tensors
        monkeypatch.setattr(dispatch, "DTYPES", set())
    without = [{"name": "mgru", "carry": "prior"}, {"name": "gru", "reset": "input"}]
    for fields in without if reason == "no variant" else EXAMPLES:
        cell = build(CELLS.parse(dict(fields)), torch.float64)
        x, start = data(cell)
        assert cell.fast_scan(x, start) is None
        assert_close(cell.scan(x, start), cell.naive_scan(x, start), 0, "outputs")
