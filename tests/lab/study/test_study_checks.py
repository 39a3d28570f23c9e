"""A study that cannot be right is refused in one line before anything starts."""

import dataclasses
import math

import pytest

from lmzoo.base.command_line import MOST_SEED
from lmzoo.base.errors import UserError
from lmzoo.lab.study.study import NAME_BYTES, Point, Study, options
from tests.user_errors import raises_user_error

NAMES = (
    "../../x",
    "/tmp/x",
    "a/b",
    "a\\b",
    "..",
    ".",
    "",
    "  ",
    "a\0b",
    "a\nb",
    "数" * 60,
    "x" * 300,
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_that_of_one_folder_is_refused(study, name):
    with raises_user_error("name"):
        dataclasses.replace(study, name=name).check()


@pytest.mark.parametrize("name", ["gru_ablation", "my study, part 2", "Größe µ", "x" * NAME_BYTES])
def test_the_name_of_a_folder_is_accepted(study, name):
    dataclasses.replace(study, name=name).check()


@pytest.mark.parametrize("second", ["a", "a ", " a", "a\n"])
def test_two_points_with_one_label_are_refused(study, second):
    points = (Point("a", "DLM46"), Point("b", "DLM46"), Point(second, "lstm_lm"))
    with raises_user_error("2 points have the label 'a'"):
        dataclasses.replace(study, points=points).check()


OF_EACH_TYPE = {
    (f.type, options(Study)[f.name].low): f
    for f in dataclasses.fields(Study)
    if f.name in options(Study)
}
"""One option of each type and lower bound."""


@pytest.mark.parametrize("field", OF_EACH_TYPE.values(), ids=lambda field: field.name)
@pytest.mark.parametrize(
    "value",
    [None, True, -1, 2.5, 1e30, math.nan, math.inf, "x", b"x", (), {5: 1}, {"recipe.lr": "x"}],
    ids=repr,
)
def test_an_option_has_the_type_and_the_range_that_it_declares(study, field, value):
    """Whatever a script gives, it is refused in one line, or it is a value of the field's type."""
    said = ""
    try:
        dataclasses.replace(study, **{field.name: value}).check()
    except UserError as error:
        said = str(error)
    if said:
        assert (field.name in said, "\n" in said) == (True, False)
        return
    plain = {int: int, float: int | float, str: str}.get(field.type)
    assert plain is None or (isinstance(value, plain) and not isinstance(value, bool))
    low = options(Study)[field.name].low
    assert low is None or low <= value <= MOST_SEED


@pytest.mark.parametrize(
    "points",
    [None, "gru", ("gru",), {"a": "gru"}, Point("a", "gru"), (Point("", "gru"),),
     (Point(None, "gru"),), (Point("a", "gru", 5),), (Point("a", "gru", search={"x": (0, 1)}),)],
    ids=repr,
)  # fmt: skip
def test_what_are_no_points_is_refused(study, points):
    with pytest.raises(UserError, match=r"point|label|fields|search"):
        dataclasses.replace(study, points=points).check()


@pytest.mark.parametrize(
    ("statuses", "diverged"),
    [
        (("diverged", "diverged"), True),
        (("diverged", "finished"), False),
        (("diverged", "failed"), False),
        (("diverged", ""), False),
    ],
)
def test_a_point_has_diverged_if_all_runs_that_decide_about_it_have(planner, statuses, diverged):
    point = planner.points[0]
    for run in point.tune_runs[1:]:
        run.status = statuses[1]
    point.tune_runs[0].status = statuses[0]
    assert point.diverged is diverged
    point.plan_confirm_runs(point.tune_runs[0].config["setting"], 1)
    assert not point.diverged
    point.confirm_runs[0].status = "diverged"
    assert point.diverged


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1), ("maximize", -1)])
def test_a_metric_to_maximize_is_a_negative_loss(study, direction, sign):
    assert dataclasses.replace(study, direction=direction).sign == sign


@pytest.mark.parametrize(
    ("cls", "given"), [(Study, {"epoch": 3}), (Point, {"feilds": {}}), (Study, {"refrence": "a"})]
)
def test_an_unknown_field_of_a_study_gets_a_suggestion(cls, given):
    near = {"epoch": "epochs", "feilds": "fields", "refrence": "reference"}
    with raises_user_error(f"near: {near[next(iter(given))]}"):
        cls(**given)
