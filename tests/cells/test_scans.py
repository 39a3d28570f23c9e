"""The scan of a cell without a loop equals the loop over `step`, for every cut and option."""

import contextlib
import dataclasses
from typing import Any

import pytest

from lmzoo.base.docstrings import cut_names
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.cells.matrix import MatrixCell
from lmzoo.laws.probes import disturb
from lmzoo.laws.tiny import FINE
from tests.cells.support import make
from tests.kernels.variants import agree as scans_agree
from tests.kernels.variants import data, results

SERIAL = {"slstm": {4, 5, 6, 7}}
"""Cells whose scan is parallel under these cuts."""
DIAGONAL = [name for name in CELLS if issubclass(CELLS[name], DiagonalCell)]
DIAGONAL += ["slstm", "rg_lru"]
MATRIX = [name for name in CELLS if issubclass(CELLS[name], MatrixCell)]
NAMES = DIAGONAL + MATRIX + ["block"]


def variants(name: str) -> list[Cell]:
    """Return a cell with every single cut and all cuts, besides those that its scan needs."""
    # Without these cuts, the scan is a loop.
    needed = SERIAL.get(name, set())
    every_cut = set(range(len(cut_names(name))))
    sets = [needed, every_cut]
    sets += [needed | {cut} for cut in every_cut]
    cells = {}
    for cuts in sets:
        # All cuts may leave nothing, which is an error.
        with contextlib.suppress(UserError):
            cell = make(name, width=6, length=6, cuts=sorted(cuts))
            cells[cell.config] = cell
    return list(cells.values())


def agree(cell: Cell, count: int, length: int):
    disturb(cell)
    scans_agree(cell, FINE, *data(cell, count, length))


@pytest.mark.parametrize("name", NAMES)
def test_every_cut(name):
    cells = variants(name)
    assert len(cells) > 3
    for cell in cells:
        agree(cell, 2, 6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("count", "length"), [(97, 1), (7, 19)])
def test_odd_sizes(name, count, length):
    """Heads that do not divide the width are rounded up."""
    names = {field.name for field in dataclasses.fields(CELLS[name].Config)}
    fields: dict[str, Any] = {"cuts": sorted(SERIAL.get(name, set()))}
    # The HGRN2 has no head of several sizes.
    if "heads" in names and name != "hgrn2":
        fields["heads"] = 4
    cell = make(name, width=10, length=length, **fields)
    agree(cell, count, length)


@pytest.mark.parametrize("name", [*DIAGONAL, "deltaproduct", "gla", "mamba", "rwkv7"])
def test_long_sequences_of_large_inputs_are_finite_in_single_precision(name):
    """Gates saturate at 0 and 1."""
    cell = make(name, width=8, length=512, cuts=sorted(SERIAL.get(name, set()))).float()
    x, start = data(cell, 2, 512)
    scale = 5
    if name in DIAGONAL:
        scale = 100
    for result in results(cell, scale * x, start, fast=True):
        assert result.isfinite().all()


@pytest.mark.parametrize("name", SERIAL)
def test_a_cell_that_reads_its_state_has_no_parallel_scan(name):
    for left in SERIAL[name]:
        cell = make(name, cuts=sorted(SERIAL[name] - {left}))
        assert cell.fast_scan(*data(cell)) is None
