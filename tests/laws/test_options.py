"""The laws hold at each value of each option of each cell and row, and at pairs of values."""

from functools import partial

import pytest

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.laws import cells as cell_laws
from lmzoo.laws import density, every_model, extremes, laws_for
from lmzoo.laws.options import some, unpromised
from lmzoo.laws.probes import disturb
from lmzoo.laws_of_training.parts import part_cases, row_cases
from tests.cases import parametrize
from tests.tiny import one_row_per_model, tiny

PAIRS = 2
"""Pairs of a cell in `make test`; of a row it is one; all are slow."""
HALF = cell_laws.law_half_precision_lasts
TURNED = ("mamba3, cuts=decay",)
"""It forgets nothing, so that rounded angles, which add up, turn what it read 2,000 tokens ago."""
ALONE = [law for law in cell_laws.CELL_LAWS if law is not HALF]
IN_A_MODEL = (extremes.law_runs_in_half_precision, every_model.law_every_parameter_learns)
OF_A_ROW = [
    *IN_A_MODEL,
    density.law_advance_equals_next_log_prob,
    every_model.law_padding_is_ignored,
]
ONLY_PAIRS = [density.law_causal]
"""It takes half of the time of a row."""
ALL_OF_A_ROW = OF_A_ROW + ONLY_PAIRS


def faults(cases, check):
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


def check_cell(config):
    """Two numbers are in a head at least: the norm of one is its sign."""
    cell = cell_laws.build_cell(config, width=8)
    disturb(cell)
    for law in ALONE:
        law(cell)
    for law in IN_A_MODEL:
        model = tiny("recurrent_lm", cell=config, width=16)
        law(model)


def faults_of_row(name, laws, cases):
    return faults(cases, partial(check_row, name, laws))


def check_row(name, laws, fields, **sizes):
    for law in laws:
        model = tiny(name, **fields, **sizes)
        if law is density.law_advance_equals_next_log_prob:
            # A norm of nearly equal numbers enlarges the rounding; what is wrong stays wrong.
            model = model.double()
        if law in laws_for(type(model)):
            law(model)


@pytest.mark.unchecked
@parametrize("name", list(CELLS))
def test_a_cell_obeys_the_laws_at_each_option(name):
    one, both = part_cases(CELLS, name)
    tried = one + some(both, PAIRS)
    assert faults(tried, check_cell) == {}


@pytest.mark.unchecked
@parametrize("name", one_row_per_model())
def test_a_row_obeys_the_laws_at_each_option(name):
    one, both = row_cases(name)
    assert faults_of_row(name, OF_A_ROW, one) == {}
    assert faults_of_row(name, ALL_OF_A_ROW, some(both, 1)) == {}


@pytest.mark.slow
@parametrize("name", list(CELLS))
def test_a_cell_obeys_the_laws_at_each_pair_of_options(name):
    one, both = part_cases(CELLS, name)
    assert faults(both, check_cell) == {}
    lasting = [case for case in one if case[0] not in TURNED]
    assert faults(lasting, lambda config: HALF(cell_laws.build_cell(config, width=8))) == {}


@pytest.mark.slow
@parametrize("name", zoo.names())
def test_a_row_obeys_the_laws_at_each_pair_of_options(name):
    if zoo.row(name).model:
        one, both = row_cases(name)
        sizes = {}
        if hasattr(zoo.config(name), "width"):
            # Two numbers are in a head at least, as in `check_cell`.
            sizes["width"] = 16
        check = partial(check_row, name, ALL_OF_A_ROW, **sizes)
        assert faults(one + both, check) == {}


def test_each_value_of_a_cell_is_a_case():
    one, _ = part_cases(CELLS, "kda")
    fields = [config for _, config in one]
    assert {"name": "kda", "expand_v": 2} in fields
    assert {"name": "kda", "cuts": ["vector"]} in fields
    assert {"name": "kda", "heads": 8} in fields
    assert {"name": "kda", "beta_max": 1.0} not in fields  # the default


def test_each_value_of_a_row_is_a_case():
    one, _ = row_cases("transformer_decoder")
    labels = {label for label, _ in one}
    assert {"attention.normed=key", "positions=none", "norm=pre"} <= labels


def test_pairs_of_values_are_cases_unless_they_are_refused():
    _, pairs = part_cases(CELLS, "attention")
    both = dict(pairs)
    allowed = both["attention, memory=forget+sinks"]
    assert allowed["memory"] == ["forget", "sinks"]
    assert "attention, memory=stick_breaking+sinks" not in both


def test_a_leaking_norm_is_promised_nothing():
    assert unpromised("norm=time_std, tied=True")
    assert not unpromised("norm=time_std_causal")
