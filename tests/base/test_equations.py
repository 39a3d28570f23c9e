"""Equations that cuts leave: every cell's docstring says what each of its cuts does."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any, get_args

import pytest

from lmzoo.base.config import to_dict
from lmzoo.base.equations import (
    cell_equations,
    cell_text,
    cut_names,
    equations_left,
    parse_equations,
)
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.mgru import NUMBERS, from_numbers

TEXT = """A cell.

    f_t = σ( x_t W_f + b_f )          gate
    c_t = tanh( x_t W_c )             squash=tanh
        | σ( x_t W_c )                squash=sigmoid
    h_t = f_t ⊙ h_{t-1} + N((1 − f_t) ⊙ c_t)

Cuts:

    0  input   x_t W_f                   3  norm    N(u) → u
    1  gate    f_t = b_f: no input       4  open    f_t → 1
    2  carry   f_t ⊙ h_{t-1} → 0; c_t = x_t
"""


def all_cuts() -> Iterator[tuple[str, list[str]]]:
    """Yield the cells with cuts, and the values of their enums in order."""
    for name in CELLS:
        fields = {field.name: field.type for field in dataclasses.fields(CELLS[name].Config)}
        if "cuts" in fields:
            kind: Any = fields["cuts"]  # frozenset[Cut], perhaps Annotated
            while get_args(kind):
                kind = get_args(kind)[0]
            yield name, [str(cut) for cut in kind]


EVERY_CELL = pytest.mark.parametrize(
    ("name", "cuts"), [pytest.param(*case, id=case[0]) for case in all_cuts()]
)


def test_most_cells_have_cuts():
    assert len(list(all_cuts())) >= 19


@EVERY_CELL
def test_the_table_of_a_docstring_is_that_of_the_cuts(name, cuts):
    names = cut_names(name)
    assert list(names[: len(cuts)]) == cuts
    text = cell_text(name)
    assert text is not None
    plain = "\n".join(right for equation in text.equations for _, right in equation.forms)
    plain += "\n".join(equation.left for equation in text.equations)
    for cut in cuts:
        assert text.cuts[cut], f"{name}: {cut} has no replacement"
        for rule in text.cuts[cut]:
            old = rule.partition(" → ")[0].partition(" = ")[0].removesuffix("u)")
            assert old in plain, f"{name}: {cut} replaces {old}, which no equation has"


@EVERY_CELL
def test_every_cut_changes_the_equations_that_are_printed(name, cuts):
    plain = cell_equations({"name": name})
    printed = [equations_left({"name": name, "cuts": [cut]}) for cut in cuts]
    assert all(printed)
    assert len({tuple(lines) for lines in printed}) == len(cuts)  # each one in its own way
    for lines in (plain, *printed):
        for line in lines:
            assert line.count("(") == line.count(")")
            assert not any(part in line for part in ("()", "( )", "  ", " + )", "= +", "⊙ )"))


@EVERY_CELL
def test_a_cut_weight_is_in_no_equation(name, cuts):
    """The order of cuts does not matter, and a second cut leaves no more equations."""
    for pair in combinations(cuts, 2):
        lines = cell_equations({"name": name, "cuts": list(pair)})
        assert lines == cell_equations({"name": name, "cuts": list(pair)[::-1]})
        fewest = min(len(cell_equations({"name": name, "cuts": [cut]})) for cut in pair)
        assert len(lines) <= fewest


def test_every_switch_of_the_mgru_that_has_an_effect_changes_the_equations():
    needs = {7: [6], 8: [6], 9: [6]}
    for number in range(NUMBERS):
        before = to_dict(CELLS["mgru"].Config(mutations=needs.get(number, [])))
        try:
            after = to_dict(CELLS["mgru"].Config(mutations=[*needs.get(number, []), number]))
        except UserError:  # the state would be zero
            continue
        assert from_numbers([number]) is not None
        lines = [cell_equations({"name": "mgru", **config}) for config in (before, after)]
        assert lines[0] != lines[1], cut_names("mgru")[number]


def test_terms_symbols_functions_and_equations_are_replaced():
    text = parse_equations(TEXT)
    assert list(text.cuts) == ["input", "gate", "carry", "norm", "open"]
    assert text.lines({"squash": "sigmoid"})[1] == "c_t = σ( x_t W_c )"

    def left(*cuts: str) -> list[str]:
        return text.lines({"cuts": cuts})

    assert left("input")[0] == "f_t = σ( b_f )"
    assert left("gate")[0] == "f_t = b_f"
    assert left("carry")[1:] == ["c_t = x_t", "h_t = N((1 − f_t) ⊙ c_t)"]
    assert left("norm")[2] == "h_t = f_t ⊙ h_{t-1} + ((1 − f_t) ⊙ c_t)"
    assert left("carry", "norm")[2] == "h_t = (1 − f_t) ⊙ c_t"


def test_a_quantity_that_is_not_used_any_more_is_left_out():
    text = parse_equations(TEXT)
    assert not [line for line in text.lines({"cuts": ["open"]}) if line.startswith("f_t")]


def test_a_cell_inside_another_shows_its_equations():
    config = {"name": "block", "inner": {"name": "gla", "cuts": ["decay"]}}
    assert equations_left(config) == ["S_t = S_{t-1} + k_t v_tᵀ"]
    assert equations_left({**config, "cuts": ["feed_forward"]})[0] == "y_t = r_t"


def test_a_cell_outside_the_package_is_read_from_its_source(tmp_path):
    (tmp_path / "mine.py").write_text(f'"""{TEXT}"""\n\n@CELLS("mine")\nclass Mine: ...\n')
    assert equations_left({"name": "mine", "cuts": ["input"]}) == []
    assert equations_left({"name": "mine", "cuts": ["input"]}, None, [tmp_path]) == [
        "f_t = σ( b_f )"
    ]


def test_equations_need_no_torch():
    code = "import sys, lmzoo.base.equations as e; assert e.cut_names('mgu')"
    code += "; assert not {'torch', 'polars'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
