import contextlib
import dataclasses
from typing import Annotated, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.config import config as cell_config
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell
from lmzoo.cells.cuts import cuts_of
from lmzoo.cells.lru import RGLRU, RGLRUCut
from lmzoo.cells.sru import QRNN, QRNNCut
from lmzoo.laws.cells import (
    UNCUT_LAWS,
    CellLaw,
    law_equal_functions_have_equal_configs,
    option_sets,
)
from lmzoo.laws.probes import disturb
from tests.cells.support import make, outputs, own_weights
from tests.tiny import quick

CARRY_CONFIGS = [{"name": "mgru", "carry": "prior"}, {"name": "mgru", "carry": "bilinear"}]
CONFIGS = [*({"name": name} for name in CELLS), *CARRY_CONFIGS]


@pytest.fixture(params=CONFIGS, ids=lambda part: "-".join(part.values()))
def cell(request: pytest.FixtureRequest) -> Cell:
    return make(**request.param)


@pytest.mark.parametrize("law", UNCUT_LAWS, ids=lambda law: law.__name__)
def test_every_cell_obeys_every_law(cell: Cell, law: CellLaw) -> None:
    disturb(cell)
    law(cell)


WITH_CUTS = [
    *({"name": name} for name in CELLS if option_sets(CELLS[name].Config)),
    *({"name": "qrnn", "window": 1, "write_gate": gated} for gated in (False, True)),
    *({"name": "gru", "reset": reset} for reset in ("before", "input")),
    *(
        {"name": "lstm_peephole", "peephole": "diagonal", "gate_recurrence": on}
        for on in (False, True)
    ),
    {"name": "min_gru", "state_to_gate": True, "candidate": "tanh"},
    {"name": "min_lstm", "candidate": "tanh"},
    {"name": "hgrn2", "heads": 8},
]


@pytest.mark.parametrize("most", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("config", WITH_CUTS, ids=lambda part: "-".join(map(str, part.values())))
def test_one_function_has_one_config(config: dict[str, Any], most: int) -> None:
    law_equal_functions_have_equal_configs(make(**config, width=8), most)


class TwoConfigs(QRNN):
    """A path to a gate that is cut is cut again."""

    @cell_config
    class Config:
        cuts: Annotated[frozenset[QRNNCut], cuts_of(QRNNCut)] = frozenset()
        window: int = 2
        write_gate: bool = False


class UnusedWeights(RGLRU):
    """The gates of a decay that is cut keep their weights."""

    @cell_config
    class Config:
        cuts: Annotated[frozenset[RGLRUCut], cuts_of(RGLRUCut)] = frozenset()
        c: float = 8.0


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (TwoConfigs, r"output_gate \(5\) = cuts input_to_output \(2\), output_gate \(5\)"),
        (UnusedWeights, r"cuts root \(6\), carry \(7\): w.wa has no effect"),
    ],
)
def test_the_law_sees_two_configs_and_unused_weights(kind: Any, found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        law_equal_functions_have_equal_configs(kind(kind.Config(), 3, 4))


def test_initial_weights_are_within_the_bounds_of_their_distribution(cell: Cell) -> None:
    own = own_weights(cell)
    for name, weight in cell.named_parameters():
        if name in own:
            continue  # the tests of its cell know its distribution
        assert weight.abs().max() <= max(weight.shape[-1] ** -0.5, cell.width**-0.5), name
        assert weight.std() > 0, name


def test_the_seed_decides_the_weights() -> None:
    assert outputs(make("mgu", seed=4)).equal(outputs(make("mgu", seed=4)))
    assert not outputs(make("mgu", seed=4)).allclose(outputs(make("mgu", seed=5)))


def check_sizes(name: str, width: int, heads: int, length: int) -> None:
    """Assert that one sequence has the same outputs step by step, at once and in blocks of two."""
    sized = any(field.name == "heads" for field in dataclasses.fields(CELLS[name].Config))
    cell = make(name, width, **({"heads": heads} if sized else {}))
    x = torch.randn(1, length, width, dtype=torch.float64)
    start = torch.ones(1, cell.num_state_vectors * width, dtype=torch.float64)
    with torch.no_grad():
        whole, state, blocks = cell.naive_scan(x, start), cell.initial_state(start), []
        for block in x.split(2, dim=1):
            y, state = cell.scan_from(block, state)
            blocks.append(y)
        torch.testing.assert_close(torch.cat(blocks, dim=1), whole)
        torch.testing.assert_close(cell.scan(x, start), whole)


@pytest.mark.slow
@quick
@given(
    name=st.sampled_from([*CELLS]),
    width=st.integers(2, 5),
    heads=st.sampled_from([1, 3, 8]),
    length=st.integers(1, 6),
)
def test_heads_need_not_divide_the_width_nor_a_window_fit(
    name: str, width: int, heads: int, length: int
) -> None:
    with contextlib.suppress(UserError):  # HGRN2 needs equal heads
        check_sizes(name, width, heads, length)


@pytest.mark.parametrize("name", ["rwkv7", "mlstm"])
def test_a_head_may_have_one_channel(name: str) -> None:
    check_sizes(name, width=2, heads=8, length=3)
