"""Readouts of cells equal the naive functions of flash-linear-attention, if it is installed.

    pip install --no-deps fla-core einops
    python -m pytest -m slow tests/cells/test_fla_oracles.py -n 0

These functions need no GPU. They compute in single precision, and scale queries by 1/√K.

Yang & Zhang 2024, https://github.com/fla-org/flash-linear-attention.
"""

import importlib
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.cells.base import Cell
from lmzoo.cells.matrix import MatrixCell
from lmzoo.functional.matrix_state import Update, matrix_scan
from tests.cells.support import make

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
H, T, COUNT = 32, 70, 2
SINGLE = 1e-5
"""Largest difference, in relation to the largest output."""


def naive(module: str, function: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that there is no GPU
        try:
            return getattr(importlib.import_module(f"fla.ops.{module}.naive"), function)
        except ImportError as error:
            pytest.skip(f"fla-core is not installed: {error}")


def example(name: str, **fields: Any) -> tuple[Cell, Tensor, Tensor]:
    """Return a cell in which no weight is an initial constant, inputs and random starts."""
    cell = make(name, width=H, length=T, **fields)
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    with torch.no_grad():
        for weight in cell.w.parameters():
            weight.add_(0.1 * noise(*weight.shape))
    start = 1 + 0.3 * noise(COUNT, cell.num_state_vectors * H)
    return cell, noise(COUNT, T, H), start


def readout(name: str) -> tuple[Update, Tensor, Tensor]:
    """Return the coefficients of all steps, S_0 and o_1 .. o_T of a cell with a matrix state."""
    cell, x, start = example(name)
    assert isinstance(cell, MatrixCell)
    with torch.no_grad():
        matrix, *memory = cell.initial_state(start)
        update = cell.update(cell.prepare(cell.project(x), tuple(memory))[0])
        return update, matrix, matrix_scan(update, matrix)[0]


def assert_equal(actual: Tensor, theirs: Tensor, keys: int) -> None:
    """Compare with outputs whose queries were scaled."""
    expected = theirs.double() * keys**0.5
    difference = ((actual - expected).abs().max() / expected.abs().max()).item()
    assert difference < SINGLE, f"differs by {difference:.1e}"
    print(f"largest relative difference {difference:.1e}")  # noqa: T201, shown by `pytest -s`


def test_gla() -> None:
    u, start, o = readout("gla")
    theirs = naive("gla", "naive_recurrent_gla")(u.query, u.key, u.value, u.log_decay, start)
    assert_equal(o, theirs[0], u.key.shape[-1])


@pytest.mark.parametrize("name", ["retention", "mamba2", "mlstm"])
def test_one_decay_per_head(name: str) -> None:
    u, start, o = readout(name)
    theirs = naive("simple_gla", "naive_recurrent_simple_gla")(
        u.query, u.key, u.value, u.log_decay[..., 0], initial_state=start
    )
    assert_equal(o, theirs[0], u.key.shape[-1])


def test_retention_in_parallel() -> None:
    """From S_0 = 0."""
    u, start, _ = readout("retention")
    q, k, v = (part.transpose(1, 2) for part in u[:3])
    theirs = naive("retention", "naive_retention")(q, k, v).transpose(1, 2)
    assert_equal(matrix_scan(u, 0 * start)[0], theirs, u.key.shape[-1])


def test_deltanet() -> None:
    """The cell has β k in `key`, and k in `probe`."""
    u, start, o = readout("deltanet")
    assert u.probe is not None
    beta = (u.key * u.probe).sum(-1, keepdim=True) / u.probe.square().sum(-1, keepdim=True)
    parts = (part.transpose(1, 2) for part in (u.query, u.probe, u.value, beta))
    theirs = naive("delta_rule", "delta_rule_recurrence")(*parts, initial_state=start)
    assert_equal(o, theirs[0].transpose(1, 2), u.key.shape[-1])


@pytest.mark.parametrize("name", ["gated_deltanet", "deltanet"])
def test_gated_deltanet(name: str) -> None:
    u, start, o = readout(name)
    assert u.probe is not None
    beta = (u.key * u.probe).sum(-1) / u.probe.square().sum(-1)
    theirs = naive("gated_delta_rule", "naive_recurrent_gated_delta_rule")(
        u.query, u.probe, u.value, beta, u.log_decay[..., 0], initial_state=start
    )
    assert_equal(o, theirs[0], u.key.shape[-1])


def test_rwkv7() -> None:
    """A diagonal plus a matrix of rank one: S_t = (diag(w) + β αᵀ) S_{t-1} + k vᵀ."""
    u, start, o = readout("rwkv7")
    assert u.probe is not None
    assert u.erase is not None
    order = (u.query, u.key, u.value, u.probe, -u.erase, u.log_decay)
    parts = (part.float().transpose(1, 2) for part in order)
    recurrence = naive("generalized_delta_rule.dplr", "dplr_recurrence")
    theirs = recurrence(*parts, initial_state=start.float())
    assert_equal(o, theirs[0].transpose(1, 2), u.key.shape[-1])


def test_hgrn2_is_gla_with_tied_keys() -> None:
    cell, x, start = example("hgrn2", heads=4)
    with torch.no_grad():
        f = cell.gates(cell.project(x), ())["f"].unflatten(-1, (4, -1))
        q = torch.nn.functional.silu(x @ cell.w.xq).unflatten(-1, (4, -1))
        v = (x @ cell.w.xv).unflatten(-1, (4, -1))
        matrix = cell.initial_state(start)[0].view(COUNT, 4, 8, 8)
        theirs = naive("gla", "naive_recurrent_gla")(q, 1 - f, v, f.log(), matrix)
        assert_equal(cell.scan(x, start), theirs[0].flatten(2), 8)


@pytest.mark.parametrize("name", ["min_gru", "min_lstm", "rg_lru"])
def test_elementwise_cells(name: str) -> None:
    """`naive_recurrent_hgrn` computes h = exp(g) h + x."""
    cell, x, start = example(name)
    with torch.no_grad():
        a, b = cell.coefficients(cell.project(x), None)
        theirs = naive("hgrn", "naive_recurrent_hgrn")(b, a.log(), start)
        assert_equal(cell.scan(x, start), theirs[0], 1)
