"""Whole cells, all parts present, equal a form of their papers that has no recurrence."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lmzoo.cells.base import Cell
from tests.cells.numpy_forms import FORMS
from tests.cells.support import make
from tests.laws.support import assert_close
from tests.tiny import FINE

H, T, COUNT = 10, 7, 2
DECAYS_IN_SINGLE = 1e-6
"""`retention` computes its fixed decays in single precision."""


def built(name: str) -> tuple[Cell, Tensor, Tensor]:
    """Return a cell in which no weight is an initial constant, inputs and random starts."""
    cell = make(name, width=H, length=T)
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    with torch.no_grad():
        for weight in cell.w.parameters():
            weight.add_(0.3 * noise(*weight.shape))
    start = 1 + 0.5 * noise(COUNT, cell.num_state_vectors * H)
    return cell, noise(COUNT, T, H), start


def expected(cell: Cell, x: Tensor, start: Tensor) -> Tensor:
    weights = {name: weight.detach().numpy() for name, weight in cell.w.named_parameters()}
    matrices = cell.initial_state(start)[0].numpy()
    form = FORMS[cell.name]
    rows = [form(weights, a, s) for a, s in zip(x.numpy(), matrices, strict=True)]
    return torch.from_numpy(np.stack(rows))


@pytest.mark.parametrize("name", FORMS)
def test_the_cell_equals_its_form_without_a_recurrence(name: str) -> None:
    cell, x, start = built(name)
    tolerance = DECAYS_IN_SINGLE if name == "retention" else FINE
    for scan in (cell.scan, cell.naive_scan):
        assert_close(scan(x, start).detach(), expected(cell, x, start), tolerance, name)


@pytest.mark.parametrize("name", FORMS)
def test_the_form_reads_every_weight_and_the_start(name: str) -> None:
    """A change of any number changes the outputs of the form, so the comparison covers it."""
    cell, x, start = built(name)
    before = expected(cell, x, start)
    for path, weight in cell.w.named_parameters():
        flat = weight.detach().view(-1)
        for i in range(0, len(flat), max(1, len(flat) // 7)):
            flat[i] += 0.1
            changed = (expected(cell, x, start) - before).abs().max()
            flat[i] -= 0.1
            assert changed > 1e-5, f"{path}[{i}] of {name}"
    assert (expected(cell, x, start + 0.1) - before).abs().max() > 1e-3
