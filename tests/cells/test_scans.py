"""The scan of a cell without a loop equals the loop over `step`, for every cut and option."""

import contextlib
import dataclasses

from lmzoo.base.docstrings import cut_names
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.diagonal import DiagonalCell
from lmzoo.cells.matrix import MatrixCell
from lmzoo.laws.probes import disturb
from lmzoo.laws.tiny import FINE
from tests.cases import parametrize
from tests.cells.support import make
from tests.kernels.variants import agree as scans_agree
from tests.kernels.variants import data, results

SERIAL = {"slstm": {4, 5, 6, 7}}
"""Cells whose scan is parallel under these cuts."""


def cells_of(kind):
    return [name for name in CELLS if issubclass(CELLS[name], kind)]


DIAGONAL = cells_of(DiagonalCell)
DIAGONAL += ["slstm", "rg_lru"]
MATRIX = cells_of(MatrixCell)
NAMES = DIAGONAL + MATRIX + ["block"]


def least_cuts(name):
    """Return the cuts without which the scan is a loop."""
    return SERIAL.get(name, set())


def variants(name):
    """Return a cell with every single cut and all cuts, besides those that its scan needs."""
    needed = least_cuts(name)
    count = len(cut_names(name))
    every_cut = set(range(count))
    sets = [needed, every_cut]
    sets += [needed | {cut} for cut in every_cut]
    cells = {}
    for cuts in sets:
        # All cuts may leave nothing, which is an error.
        with contextlib.suppress(UserError):
            given = sorted(cuts)
            cell = make(name, width=6, length=6, cuts=given)
            # Sets of cuts of one function are tested once.
            cells[cell.config] = cell
    return list(cells.values())


def agree(cell, count, length):
    disturb(cell)
    x, start = data(cell, count, length)
    scans_agree(cell, FINE, x, start)


@parametrize("name", NAMES)
def test_every_cut(name):
    cells = variants(name)
    assert len(cells) > 3
    for cell in cells:
        agree(cell, 2, 6)


ODD_SIZES = [(97, 1), (7, 19)]


@parametrize("name", NAMES)
@parametrize(("count", "length"), ODD_SIZES)
def test_odd_sizes(name, count, length):
    """Heads that do not divide the width are rounded up."""
    fields = {"cuts": sorted(least_cuts(name))}
    options = dataclasses.fields(CELLS[name].Config)
    names = {field.name for field in options}
    # The HGRN2 has no head of several sizes.
    if "heads" in names and name != "hgrn2":
        fields["heads"] = 4
    cell = make(name, width=10, length=length, **fields)
    agree(cell, count, length)


LONG = DIAGONAL + ["deltaproduct", "gla", "mamba", "rwkv7"]


@parametrize("name", LONG)
def test_long_sequences_of_large_inputs_are_finite_in_single_precision(name):
    """Gates saturate at 0 and 1."""
    cuts = sorted(least_cuts(name))
    cell = make(name, width=8, length=512, cuts=cuts)
    cell.float()
    x, start = data(cell, 2, 512)
    scale = 5
    if name in DIAGONAL:
        scale = 100
    found = results(cell, scale * x, start, fast=True)
    for result in found:
        assert result.isfinite().all()


@parametrize("name", SERIAL)
def test_a_cell_that_reads_its_state_has_no_parallel_scan(name):
    for left in SERIAL[name]:
        cuts = sorted(SERIAL[name] - {left})
        cell = make(name, cuts=cuts)
        x, start = data(cell)
        # The gates of a step need the state before.
        assert cell.fast_scan(x, start) is None
