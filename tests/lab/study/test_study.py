"""A study that cannot be right is refused in one line; `study.json` has all that runs it again."""

import dataclasses
import math
from contextlib import closing

import optuna
import pytest

from lmzoo.base.command_line import MOST_SEED
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.search import Asha
from lmzoo.lab.study.study import NAME_BYTES, Point, Study, options
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.resolve import resolve
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


DECLARED = options(Study)
OPTIONS = [f for f in dataclasses.fields(Study) if f.name in DECLARED]
OF_EACH_TYPE = {(f.type, DECLARED[f.name].low): f for f in OPTIONS}
"""One option of each type and lower bound."""
VALUES = (
    *(None, True, -1, 2.5, 1e30, math.nan, math.inf, MOST_SEED, MOST_SEED + 1),
    *("x", b"x", (), {5: 1}, {"recipe.lr": "x"}),
)


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


def test_what_are_no_points_is_refused(study):
    for points in (
        *(None, "gru", ("gru",), {"a": "gru"}, Point("a", "gru"), (Point("", "gru"),)),
        *((Point(None, "gru"),), (Point("a", "gru", 5),)),
        (Point("a", "gru", search={"x": (1, 0)}),),
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


@pytest.mark.parametrize(
    ("cls", "given", "near"),
    [(Study, "epoch", "epochs"), (Point, "feilds", "fields"), (Study, "refrence", "reference")],
)
def test_an_unknown_field_of_a_study_gets_a_suggestion(cls, given, near):
    with raises_user_error(f"near: {near}"):
        cls(**{given: 3})


def written(study, corpus, corpus_fields, path) -> dict:
    with closing(StudyStore(path)) as store:
        Planner(study, resolve(study, corpus, corpus_fields), store)
    return read_json(path / STUDY)


def test_study_json_names_the_class_of_an_object(study, corpus, corpus_fields, tmp_path):
    sampler = optuna.samplers.RandomSampler(seed=1)
    changed = dataclasses.replace(study, sampler=sampler, pruner=Asha((1,), 2))
    asked = written(changed, corpus, corpus_fields, tmp_path)["asked"]
    assert (asked["sampler"], asked["pruner"]) == ("RandomSampler", "Asha")


def test_each_point_lists_its_own_search_space(study, corpus, corpus_fields, tmp_path):
    points = (
        Point("studied", "DLM46"),
        Point("own", "DLM46", {"cell.cuts": [4]}, search={"recipe.batch": Choice((4, 8))}),
        Point("nothing", "DLM46", {"cell.cuts": [3]}, search={}),
    )
    search = {"recipe.lr": FloatRange(0.1, 0.2)}
    changed = dataclasses.replace(study, points=points, search=search)
    content = written(changed, corpus, corpus_fields, tmp_path)
    lr, batch = {"low": 0.1, "high": 0.2, "log": False}, {"values": [4, 8]}
    own = {point["label"]: point["search"] for point in content["points"]}
    assert own["studied"] == {"recipe.lr": lr}
    assert own["own"] == {"recipe.batch": batch}
    assert own["nothing"] == {} == own["unigram count"]
    assert content["search"] == {"recipe.lr": lr, "recipe.batch": batch}
    assert content["asked"]["search"] == {"recipe.lr": lr}


def test_a_pair_is_a_range_and_a_list_is_a_choice(study):
    short = {"lr": (1e-3, 1e-1), "drop": (0.0, 0.5), "width": (8, 64), "norm": ["rms", "layer"]}
    ranges = {
        "lr": FloatRange(1e-3, 1e-1, log=True),  # it spans a decade
        "drop": FloatRange(0.0, 0.5),
        "width": IntRange(8, 64),
        "norm": Choice(("rms", "layer")),
    }
    asked = dataclasses.replace(study, search=short)
    assert asked.search == ranges == Point("a", "gru", search=short).search
    assert asked.search_words.startswith("lr=0.001:0.1:log, drop=0.0:0.5, width=8:64, norm=rms,lay")
    for wrong in ((1, 0), (1, 2, 3), ("a", "b"), [], object()):
        with raises_user_error("a range is a pair low, high"):
            dataclasses.replace(study, search={"recipe.lr": wrong}).check()
