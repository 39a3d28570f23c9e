"""Docstrings of registered parts, read without importing them, are those of the classes."""

import dataclasses
import re
from collections.abc import Iterator
from typing import get_args

from lmzoo.base.config import to_dict
from lmzoo.base.docstrings import (
    cell_equations,
    cell_text,
    cut_names,
    equations_left,
    first_block,
    parse_equations,
    part_docstring,
)
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS


def test_a_part_that_is_not_registered_has_none():
    assert part_docstring("EMISSIONS", "nothing") == ""


def test_the_first_block_has_the_equations():
    lines = first_block(part_docstring("EMISSIONS", "mixture"))
    assert lines[0] == "P(z | y) = softmax_z( A y + a )"
    assert len(lines) == 3
    assert first_block("Prose\n\nonly.") == []


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
            kind = fields["cuts"]  # frozenset[Cut], perhaps Annotated
            while get_args(kind):
                kind = get_args(kind)[0]
            yield name, [str(cut) for cut in kind]


def test_the_table_of_a_docstring_is_that_of_the_cuts():
    """Each cut has a replacement of something that stands in an equation."""
    cells = list(all_cuts())
    assert len(cells) >= 19
    for name, cuts in cells:
        assert list(cut_names(name)[: len(cuts)]) == cuts, name
        text = cell_text(name)
        assert text is not None
        forms = [form.line for item in text.equations if not isinstance(item, str) for form in item]
        plain = "\n".join([*(item for item in text.equations if isinstance(item, str)), *forms])
        plain = re.sub(" +", " ", plain)
        for cut in cuts:
            rules = re.split("; |: ", text.cuts[cut])
            assert rules[0], f"{name}: {cut} has no replacement"
            for rule in (rule for rule in rules if " → " in rule or " = " in rule):
                old = re.split(" → | = ", rule)[0].removesuffix("u)")
                assert old in plain, f"{name}: {cut} replaces {old}, which no equation has"


def test_every_cut_of_every_cell_is_printed_in_its_own_way():
    for name, cuts in all_cuts():
        printed = [equations_left({"name": name, "cuts": [cut]}) for cut in cuts]
        for lines in printed:
            assert len(lines) == 1, name
        assert len(set(map(tuple, printed))) == len(cuts), name
        every = cell_equations({"name": name, "cuts": cuts[::-1]})
        assert every == [*cell_equations({"name": name}), *(f"cut {line}" for [line] in printed)]


def test_every_switch_of_the_mgru_that_has_an_effect_changes_the_equations():
    needs = {7: [6], 8: [6], 9: [6]}
    for number in range(len(cut_names("mgru"))):
        before = to_dict(CELLS["mgru"].Config(mutations=needs.get(number, [])))
        try:
            after = to_dict(CELLS["mgru"].Config(mutations=[*needs.get(number, []), number]))
        except UserError:  # the state would be zero
            continue
        assert equations_left({"name": "mgru", **after}, {"name": "mgru", **before}), number


def test_options_choose_a_form_and_cuts_are_below():
    text = parse_equations(TEXT)
    assert dict(text.cuts) == {
        "input": "x_t W_f → 0", "gate": "f_t = b_f: no input", "norm": "N(u) → u",
        "carry": "f_t ⊙ h_{t-1} → 0; c_t = x_t", "open": "f_t → 1",
    }  # fmt: skip
    assert text.lines({}) == [
        "f_t = σ( x_t W_f + b_f )          gate",
        "c_t = tanh( x_t W_c )",
        "h_t = f_t ⊙ h_{t-1} + N((1 − f_t) ⊙ c_t)",
    ]
    config = {"squash": "sigmoid", "cuts": ["open", "carry"]}
    assert text.lines(config)[1] == "c_t = σ( x_t W_c )"
    assert text.replaced(config) == ["carry (2): f_t ⊙ h_{t-1} → 0; c_t = x_t", "open (4): f_t → 1"]


def test_what_the_reference_has_is_not_repeated():
    cut = {"name": "gru", "cuts": ["reset", "update"], "reset": "before"}
    assert equations_left(cut, {**cut, "cuts": ["reset"]}) == ["update (10): h_t = n_t"]
    assert equations_left(cut, cut) == []
    form = "n_t = tanh( x_t W_in + b_in + (r_t ⊙ h_{t-1}) W_hn + b_hn )"
    expected = [form, "reset (9): r_t → 1", "update (10): h_t = n_t"]
    assert equations_left(cut, {"name": "lstm"}) == expected  # another cell
    assert equations_left({"name": "gru"}, cut)[0].startswith("n_t = tanh( x_t W_in + b_in + r_t")


def test_a_cell_inside_another_shows_its_equations():
    config = {"name": "block", "inner": {"name": "gla", "cuts": ["gate"]}}
    assert equations_left(config) == ["gate (3): swish(W_g x_t) → 1"]
    assert equations_left(config, config) == []
    assert len(equations_left({**config, "cuts": ["feed_forward"]})) == 2


def test_a_cell_outside_the_package_is_read_from_its_source(tmp_path):
    (tmp_path / "mine.py").write_text(f'"""{TEXT}"""\n\n@CELLS("mine")\nclass Mine: ...\n')
    mine = {"name": "mine", "cuts": ["input"]}
    assert equations_left(mine) == cell_equations(mine) == []
    assert equations_left(mine, None, [tmp_path]) == ["input (0): x_t W_f → 0"]
