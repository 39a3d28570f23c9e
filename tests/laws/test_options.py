"""The laws hold at each value of each option of each cell and row, and at pairs of values."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.laws import Law, density, every_model, extremes, laws_for
from lmzoo.laws import cells as cell_laws
from lmzoo.laws.options import Case, some, unpromised
from lmzoo.laws.probes import disturb
from lmzoo.laws_of_training.parts import part_cases, row_cases
from tests.tiny import one_row_per_model, tiny

PAIRS = 2
"""Pairs of a cell in `make test`; of a row it is one; all are slow."""
HALF = cell_laws.law_half_precision_lasts
ALONE = [law for law in cell_laws.CELL_LAWS if law is not HALF]
IN_A_MODEL = (extremes.law_runs_in_half_precision, every_model.law_every_parameter_learns)
OF_A_ROW = (
    *IN_A_MODEL,
    density.law_advance_equals_next_log_prob,
    every_model.law_padding_is_ignored,
)
ONLY_PAIRS = (density.law_causal,)
"""It takes half of the time of a row."""
ALL_OF_A_ROW = (*OF_A_ROW, *ONLY_PAIRS)


def faults(cases: Iterable[Case], check: Callable[[Any], None]) -> dict[str, str]:
    """Return the faults of the cases that are promised, and that the part does not refuse."""
    failed = {}
    for label, fields in cases:
        if unpromised(label):
            continue
        try:
            check(fields)
        except AssertionError as error:
            failed[label] = str(error)
        except UserError:
            continue
    return failed


def check_cell(config: dict[str, Any]):
    """Two numbers are in a head at least: the norm of one is its sign."""
    cell = cell_laws.build_cell(config, width=8)
    disturb(cell)
    for law in ALONE:
        law(cell)
    for law in IN_A_MODEL:
        law(tiny("recurrent_lm", cell=config, width=16))


def check_row(name: str, laws: Iterable[Law], fields: dict[str, Any]):
    for law in laws:
        model = tiny(name, **fields)
        if law in laws_for(type(model)):
            law(model)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", list(CELLS))
def test_a_cell_obeys_the_laws_at_each_option(name):
    one, both = part_cases(CELLS, name)
    assert faults([*one, *some(both, PAIRS)], check_cell) == {}


@pytest.mark.unchecked
@pytest.mark.parametrize("name", one_row_per_model())
def test_a_row_obeys_the_laws_at_each_option(name):
    one, both = row_cases(name)
    assert faults(one, partial(check_row, name, OF_A_ROW)) == {}
    assert faults(some(both, 1), partial(check_row, name, ALL_OF_A_ROW)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CELLS))
def test_a_cell_obeys_the_laws_at_each_pair_of_options(name):
    one, both = part_cases(CELLS, name)
    assert faults(both, check_cell) == {}
    for _, config in one:
        HALF(cell_laws.build_cell(config, width=8))


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_a_row_obeys_the_laws_at_each_pair_of_options(name):
    if zoo.row(name).model:
        one, both = row_cases(name)
        assert faults([*one, *both], partial(check_row, name, ALL_OF_A_ROW)) == {}


def test_each_value_is_a_case():
    fields: list[dict[str, Any]] = [config for _, config in part_cases(CELLS, "kda")[0]]
    assert {"name": "kda", "expand_v": 2} in fields
    assert {"name": "kda", "cuts": ["vector"]} in fields
    assert {"name": "kda", "heads": 8} in fields
    assert {"name": "kda", "beta_max": 1.0} not in fields  # the default
    labels = [label for label, _ in row_cases("transformer_decoder")[0]]
    assert {"attention.normed=key", "positions=none", "norm=pre"} <= set(labels)
    both = dict(part_cases(CELLS, "attention")[1])
    assert both["attention, memory=forget+sinks"]["memory"] == ["forget", "sinks"]
    assert "attention, memory=stick_breaking+sinks" not in both  # refused
    assert unpromised("norm=time_std, tied=True")
    assert not unpromised("norm=time_std_causal")
