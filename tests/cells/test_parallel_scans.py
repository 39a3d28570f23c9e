"""The parallel scan of a cell equals the loop over `step`, for every single cut."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from lmzoo.base.equations import cut_names
from lmzoo.cells.base import CELLS, Cell
from lmzoo.laws.support import assert_close
from lmzoo.laws.tiny import FINE
from tests.kernels.variants import build, data, results

ALWAYS = ("min_gru", "min_lstm", "qrnn", "lru", "rg_lru", "hgrn2")
"""Cells that always have a parallel scan."""
SERIAL = {"sru": {1, 4}, "slstm": {4, 5, 6, 7}}
"""Cells whose scan is parallel under these cuts."""
OTHER: list[dict[str, Any]] = [
    {"name": "min_gru", "candidate": "tanh"},
    {"name": "min_lstm", "candidate": "linear"},
    {"name": "qrnn", "window": 3, "write_gate": True},
    {"name": "qrnn", "window": 1},
    {"name": "sru", "cuts": [1, 4], "highway_bias": -1.0},
    {"name": "hgrn2", "heads": 5},
    {"name": "lru", "r_min": 0.9, "r_max": 0.99},
]


def variants(name: str) -> list[Any]:
    """Return the configs with every single cut, besides those that the parallel scan needs."""
    needed = SERIAL.get(name, set())
    cuts = [needed | {i} for i in range(len(cut_names(name)))]
    configs = [CELLS.parse({"name": name, "cuts": list(some)}) for some in [needed, *cuts]]
    return list(dict.fromkeys(configs))


def agree(cell: Cell, tolerance: float, count: int = 3, length: int = 4) -> None:
    """Assert that both scans have the same outputs and gradients, in relation to the largest."""
    parallel, serial = (results(cell, *data(cell, count, length), fast=f) for f in (True, False))
    names = ["outputs", "inputs", "start", *(name for name, _ in cell.named_parameters())]
    for name, actual, expected in zip(names, parallel, serial, strict=True):
        assert expected.isfinite().all(), f"{name} of {cell.config}"
        scale = 1 + expected.abs().max()
        assert_close(actual / scale, expected / scale, tolerance, f"{name} of {cell.config}")


@pytest.mark.parametrize("name", [*ALWAYS, *SERIAL])
def test_every_cut(name: str) -> None:
    configs = variants(name)
    assert len(configs) > 3
    for config in configs:
        agree(build(config, torch.float64), FINE)


@pytest.mark.parametrize(
    ("width", "heads", "cut"), [(17, 1, None), *((40, 2, cut) for cut in range(6))]
)
def test_large_heads_of_hgrn2_are_scanned_in_chunks(
    width: int, heads: int, cut: int | None
) -> None:
    cuts = [] if cut is None else [cut]
    config = CELLS.parse({"name": "hgrn2", "heads": heads, "cuts": cuts})
    agree(build(config, torch.float64, width=width), FINE, 3, 19)


@pytest.mark.parametrize("fields", OTHER, ids=str)
def test_every_option(fields: dict[str, Any]) -> None:
    agree(build(CELLS.parse(dict(fields)), torch.float64), FINE)


@pytest.mark.parametrize("name", [*ALWAYS, *SERIAL])
@pytest.mark.parametrize(("count", "length"), [(97, 1), (1, 512)])
def test_odd_sizes_and_long_sequences(name: str, count: int, length: int) -> None:
    config = CELLS.parse({"name": name, "cuts": list(SERIAL.get(name, set()))})
    agree(build(config, torch.float64, width=30), FINE, count, length)


@pytest.mark.parametrize("name", [*ALWAYS, *SERIAL])
def test_large_inputs_do_not_overflow(name: str) -> None:
    """Gates saturate at 0 and 1 in single precision."""
    cell = build(CELLS.parse({"name": name, "cuts": list(SERIAL.get(name, set()))}), torch.float32)
    x, start = data(cell, 2, 512)
    for result in results(cell, 100 * x, start, fast=True):
        assert result.isfinite().all()


@pytest.mark.parametrize("name", SERIAL)
def test_a_cell_that_reads_its_state_has_no_parallel_scan(name: str) -> None:
    for left in SERIAL[name]:
        cuts = SERIAL[name] - {left}
        cell = build(CELLS.parse({"name": name, "cuts": list(cuts)}), torch.float64)
        assert cell.fast_scan(*data(cell)) is None


@pytest.mark.parametrize("name", ALWAYS)
def test_members_of_a_pack_have_the_gradients_of_a_cell_alone(name: str) -> None:
    cell = build(CELLS.parse(name), torch.float64)
    x, start = data(cell, 6)

    def loss(x: Tensor, start: Tensor) -> Tensor:
        return cell.scan(x, start).square().sum()

    packed = vmap(grad(loss, argnums=(0, 1)))(x.unflatten(0, (3, 2)), start.unflatten(0, (3, 2)))
    for found, expected in zip(packed, grad(loss, argnums=(0, 1))(x, start), strict=True):
        assert_close(found.flatten(0, 1), expected, FINE, "gradient")
