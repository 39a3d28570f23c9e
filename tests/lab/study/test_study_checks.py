"""A study that cannot be right is refused in one line before anything starts."""

import dataclasses
import math

import pytest

from lmzoo.base.command_line import MOST_SEED
from lmzoo.base.errors import UserError
from lmzoo.lab.study.study import NAME_BYTES, Point, Study, options
from tests.user_errors import raises_user_error

NAMES = ("../../x", "/tmp/x", "a/b", "a\\b", "..", "", "  ", "a\0b", "a\nb", "数" * 60, "x" * 300)


def test_only_the_name_of_one_folder_is_accepted(study):
    for name in NAMES:
        with raises_user_error("name"):
            dataclasses.replace(study, name=name).check()
    for name in ("gru_ablation", "my study, part 2", "Größe µ", "x" * NAME_BYTES):
        dataclasses.replace(study, name=name).check()


def test_two_points_with_one_label_are_refused(study):
    for second in ("a", "a ", " a", "a\n"):
        points = (Point("a", "DLM46"), Point("b", "DLM46"), Point(second, "lstm_lm"))
        with raises_user_error("2 points have the label 'a'"):
            dataclasses.replace(study, points=points).check()


OF_EACH_TYPE = {
    (f.type, options(Study)[f.name].low): f
    for f in dataclasses.fields(Study)
    if f.name in options(Study)
}
"""One option of each type and lower bound."""
VALUES = (None, True, -1, 2.5, 1e30, math.nan, math.inf, "x", b"x", (), {5: 1}, {"recipe.lr": "x"})


@pytest.mark.parametrize("field", OF_EACH_TYPE.values(), ids=lambda field: field.name)
def test_an_option_has_the_type_and_the_range_that_it_declares(study, field):
    """Whatever a script gives, it is refused in one line, or it is a value of the field's type."""
    plain = {int: int, float: int | float, str: str}.get(field.type)
    low = options(Study)[field.name].low
    for value in VALUES:
        said = ""
        try:
            dataclasses.replace(study, **{field.name: value}).check()
        except UserError as error:
            said = str(error)
        fits = plain is None or (isinstance(value, plain) and not isinstance(value, bool))
        fits = fits and (low is None or low <= value <= MOST_SEED)
        assert fits if not said else (field.name in said and "\n" not in said), value


def test_the_largest_seed_is_accepted_and_one_more_is_not(study):
    dataclasses.replace(study, seed=MOST_SEED).check()
    with raises_user_error("seed"):
        dataclasses.replace(study, seed=MOST_SEED + 1).check()


def test_what_are_no_points_is_refused(study):
    for points in (
        *(None, "gru", ("gru",), {"a": "gru"}, Point("a", "gru"), (Point("", "gru"),)),
        *((Point(None, "gru"),), (Point("a", "gru", 5),)),
        (Point("a", "gru", search={"x": (0, 1)}),),
    ):
        with pytest.raises(UserError, match=r"point|label|fields|search"):
            dataclasses.replace(study, points=points).check()


@pytest.mark.parametrize("other", ["diverged", "finished", "failed", ""])
def test_a_point_has_diverged_if_all_runs_that_decide_about_it_have(planner, other):
    point = planner.points[0]
    for run in point.tune_runs[1:]:
        run.status = other
    point.tune_runs[0].status = "diverged"
    assert point.diverged is (other == "diverged")
    point.plan_confirm_runs(point.tune_runs[0].config["setting"], 1)
    assert not point.diverged
    point.confirm_runs[0].status = "diverged"
    assert point.diverged


def test_a_metric_to_maximize_is_a_negative_loss(study):
    signs = [dataclasses.replace(study, direction=d).sign for d in ("minimize", "maximize")]
    assert signs == [1, -1]


@pytest.mark.parametrize(
    ("cls", "given", "near"),
    [(Study, "epoch", "epochs"), (Point, "feilds", "fields"), (Study, "refrence", "reference")],
)
def test_an_unknown_field_of_a_study_gets_a_suggestion(cls, given, near):
    with raises_user_error(f"near: {near}"):
        cls(**{given: 3})
