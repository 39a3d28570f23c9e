import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.mgu import MGRU, MGU
from lmzoo.contract import MODELS, Score
from lmzoo.emissions.vector import VectorEmission
from lmzoo.functional.normalise import Norm
from tests.tiny import quick

keys = st.sampled_from(["a", "b", "c"])
leaves = st.integers() | st.text(max_size=3)


def branches(inner):
    return st.dictionaries(keys, inner, max_size=3)


plain = st.recursive(leaves, branches, max_leaves=6)
trees = branches(plain)


@quick
@given(trees)
def test_overlaying_nothing_or_the_same_fields_changes_nothing(base):
    assert zoo.overlay(base, {}) == base == zoo.overlay(base, base)


@quick
@given(trees, trees)
def test_overlaid_fields_replace_those_of_the_base(base, over):
    once = zoo.overlay(base, over)
    assert zoo.overlay(once, over) == once
    for key, value in (base | over).items():
        is_part = isinstance(base.get(key), dict | str)
        # A mapping over a name or a mapping is merged with it.
        is_merged = is_part and isinstance(over.get(key), dict)
        if not is_merged:
            assert once[key] == value


CUT = {"name": "mgu", "cuts": [0]}


def test_a_part_with_another_name_replaces_the_old_part():
    assert overlaid_cell(CUT, {"name": "gru"}) == {"name": "gru"}
    assert overlaid_cell(CUT, "gru") == "gru"


def test_fields_of_a_part_replace_its_fields():
    wanted = {"name": "mgu", "cuts": [1]}
    assert overlaid_cell(CUT, {"cuts": [1]}) == wanted
    assert overlaid_cell("mgu", {"cuts": [1]}) == wanted


def overlaid_cell(base, over):
    model = {"cell": base, "width": 4}
    return zoo.overlay(model, {"cell": over})["cell"]


def test_rows_are_found_by_name_and_by_alias():
    for name in zoo.names():
        row = zoo.row(name)
        assert row.name == name
        for alias in row.aliases:
            assert zoo.row(alias) is row
    # Names may be written small.
    assert zoo.row("dlm46") is zoo.row("mutable_mgu_mixture")


def test_every_row_has_a_description_and_is_its_model_with_fields_set():
    for row in map(zoo.row, zoo.names()):
        assert row.summary.endswith("."), row.name
        assert "\n" not in row.summary, row.name
        assert row.source, row.name
        if row.model is not None:
            model = MODELS[row.model]
            expected = zoo.config(row.model, **row.fields)
            assert model.score is Score(row.score), row.name
            assert zoo.config(row.name) == expected, row.name


def test_fields_override_those_of_the_preset_and_of_its_parts():
    config = zoo.config("DLM23", width=8, cell={"name": "mgu", "cuts": [4]}, norm="l2")
    assert config.width == 8
    assert config.cell == MGU.Config(cuts=[4])
    assert config.norm == Norm.L2
    assert config.emission == VectorEmission.Config()  # from the preset


def test_cuts_are_a_list_or_a_text():
    config = zoo.config("DLM46", cell={"cuts": "0,2"})
    assert config.cell == MGU.Config(cuts=[0, 2])


def test_mutation_numbers_override_the_fields_of_a_cell():
    expected = MGRU.Config(mutations=[4, 6])
    for cell in ({"mutations": [4, 6]}, {"name": "mgru", "mutations": "4,6"}):
        config = zoo.config("DLM47", cell=cell)
        assert config.cell == expected


INVALID = [
    ({"width": 0}, "width: .*got 0"),
    ({"cell": {"cuts": ["reset"]}}, "cell: .*no cut 'reset'"),
    ({"cell": {"cuts": [6, 7]}}, r"cuts carry \(6\), write \(7\) leave h = 0"),
    ({"kernel": 3}, "kernel"),
]


@pytest.mark.parametrize(("fields", "message"), INVALID)
def test_an_invalid_field_is_an_error(fields, message):
    with pytest.raises(UserError, match=message):
        zoo.config("DLM46", **fields)
