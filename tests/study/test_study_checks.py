"""A study that cannot be right is refused in one line before anything starts."""

import dataclasses

import pytest

from lmzoo.study.study import NAME_BYTES, Point, Study
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


@pytest.mark.parametrize("margin", [float("inf"), float("nan")])
def test_a_margin_that_is_not_finite_is_refused(study, margin):
    with raises_user_error("margin"):
        dataclasses.replace(study, margin=margin).check()


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


@pytest.mark.parametrize(
    ("cls", "given"), [(Study, {"epoch": 3}), (Point, {"feilds": {}}), (Study, {"refrence": "a"})]
)
def test_an_unknown_field_of_a_study_gets_a_suggestion(cls, given):
    near = {"epoch": "epochs", "feilds": "fields", "refrence": "reference"}
    with raises_user_error(f"near: {near[next(iter(given))]}"):
        cls(**given)
