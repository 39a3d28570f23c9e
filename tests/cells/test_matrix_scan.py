"""Cells with a matrix state: the chunked scan equals the steps, for every cut and at odd sizes."""

import pytest
import torch

from lmzoo.cells.base import CELLS, Cell
from lmzoo.cells.matrix import MatrixCell
from lmzoo.laws.probes import disturb
from lmzoo.laws.support import assert_close
from tests.cells.support import make
from tests.kernels.variants import data, results
from tests.tiny import FINE

NAMES = sorted(name for name in CELLS if issubclass(CELLS[name], MatrixCell))


def variants() -> list[tuple[str, dict]]:
    """Return every cell without cuts, with each cut, and with all cuts."""
    cases = []
    for name in NAMES:
        cuts = [*CELLS[name].Config.__dataclass_fields__["cuts"].type.__args__[0].__args__[0]]
        sets = [[], *([cut] for cut in cuts), cuts]
        cases += [(name, {"cuts": [str(cut) for cut in chosen]}) for chosen in sets]
    return cases


def agree(cell: Cell, count: int, length: int) -> None:
    """Assert that both scans agree in outputs and in all gradients."""
    disturb(cell)
    x, start = data(cell, count, length)
    fast, naive = (results(cell, x, start, fast=fast) for fast in (True, False))
    names = ["outputs", "inputs", "start", *(name for name, _ in cell.named_parameters())]
    for name, actual, expected in zip(names, fast, naive, strict=True):
        scale = 1 + expected.abs().max()
        assert_close(actual / scale, expected / scale, FINE, f"{name} of {cell.config}")


@pytest.mark.parametrize(("name", "fields"), variants(), ids=str)
def test_every_cut_in_both_scans(name: str, fields: dict) -> None:
    agree(make(name, width=6, length=6, **fields), 2, 6)


@pytest.mark.parametrize("name", NAMES)
def test_odd_sizes(name: str) -> None:
    """Heads that do not divide the width are rounded up."""
    fields = {} if name == "mamba" else {"heads": 4}
    agree(make(name, width=10, length=19, **fields), 7, 19)


@pytest.mark.parametrize("name", ["deltaproduct", "gla", "mamba", "rwkv7"])
def test_long_sequences_are_finite_in_single_precision(name: str) -> None:
    cell = make(name, width=8, length=256).float()
    x, start = data(cell, 2, 256)
    for result in results(cell, 5 * x, start, fast=True):
        assert result.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_the_start_of_ones_is_a_state_of_zeros(name: str) -> None:
    cell = make(name)
    start = torch.ones(2, cell.num_state_vectors * cell.width, dtype=torch.float64)
    assert all(not part.any() for part in cell.initial_state(start))
