"""Labels of points show cuts by name, with the numbers of each cell's own enum."""

import subprocess
import sys

import pytest

from lmzoo.base.docstrings import cut_names
from lmzoo.base.errors import UserError
from lmzoo.cells.mgu import MGU, from_numbers
from lmzoo.lab.store.labels import display_label, find_point, named_points, short_names
from tests.base.test_docstrings import all_cuts
from tests.cases import cases, rows

TABLES = "lab/store/cases.toml"
CELLS = rows(TABLES, "cells")
NEEDS = {7: [6], 8: [6], 9: [6]}
"""Switches of the MGRU that have an effect only with another one."""


@pytest.mark.parametrize("number", range(8))
def test_a_cut_of_the_mgu_has_the_name_of_its_number(number):
    assert MGU.Config(mutations=[number]) == MGU.Config(cuts=[cut_names("mgu")[number]])


@pytest.mark.parametrize("number", range(len(cut_names("mgru"))))
def test_a_switch_of_the_mgru_has_the_name_of_its_number(number):
    *fields, value = cut_names("mgru")[number].split("=")
    on = from_numbers([*NEEDS.get(number, []), number])
    assert all(on[field] == value for field in fields)
    assert fields or value in on["cuts"] or on.get(value) is True


def test_the_name_of_every_cut_is_shown():
    for name, cuts in all_cuts():
        for number, cut in enumerate(cuts):
            assert display_label(f"cut {number}", name) == f"cut {cut} ({number})"


@cases(TABLES, "shown", "label, cell, shown")
def test_numbers_of_switches_are_shown_by_name(label, cell, shown):
    assert display_label(label, CELLS.get(cell)) == shown


@pytest.fixture
def points():
    configs = {"d4": {"cell": CELLS["mgru"]}}
    return named_points(rows(TABLES, "study"), configs)["points"]


@cases(TABLES, "found", "text, point")
def test_a_point_is_found_by_label_alias_name_or_number(points, text, point):
    assert find_point(points, text)["id"] == point


def test_an_ambiguous_number_lists_its_points(points):
    with pytest.raises(UserError, match=r"'4' names 2 points: cut state_to_candidate \(4\), mgru"):
        find_point(points, "4")


def test_an_unknown_point_lists_all(points):
    with pytest.raises(UserError, match=r"no point 'cut 8'; known: wild type, cut state_to_cand"):
        find_point(points, "cut 8")


def test_a_stored_label_is_kept(points):
    assert points[2]["stored_labels"] == ["cut 2,3,4,5", "cut 2,7"]
    assert points[2]["aliases"] == ["cut gate_bias (2) + write (7)"]


def test_a_label_without_cuts_has_no_short_name_but_itself():
    assert short_names("wild type") == {"wild type"}


def test_labels_need_no_torch():
    absent = "assert not {'torch', 'polars', 'ray'} & set(sys.modules)"
    code = f"import sys, lmzoo.lab.store.labels; {absent}"
    subprocess.run([sys.executable, "-c", code], check=True)
