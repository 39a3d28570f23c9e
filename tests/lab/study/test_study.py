"""A study that cannot be right is refused in one line; `study.json` has all that runs it again."""

import dataclasses
import math
from contextlib import closing
from dataclasses import replace

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
from tests.cases import cases
from tests.user_errors import raises_user_error


@cases("lab/study/cases.toml", "no_names", "name")
def test_what_is_no_name_of_one_folder_is_refused(study, name):
    with raises_user_error("name"):
        replace(study, name=name).check()


@pytest.mark.parametrize("name", ["gru_ablation", "my study, part 2", "Größe µ", "x" * NAME_BYTES])
def test_the_name_of_one_folder_is_accepted(study, name):
    replace(study, name=name).check()


@pytest.mark.parametrize("second", ["a", "a ", " a", "a\n"])
def test_two_points_with_one_label_are_refused(study, second):
    points = (Point("a", "DLM46"), Point("b", "DLM46"), Point(second, "lstm_lm"))
    doubled = replace(study, points=points)
    with raises_user_error("2 points have the label 'a'"):
        doubled.check()


DECLARED = options(Study)
OF_EACH_TYPE = {}
"""One option of each type and lower bound."""
for field in dataclasses.fields(Study):
    if field.name in DECLARED:
        OF_EACH_TYPE[field.type, DECLARED[field.name].low] = field
NUMBERS = (True, -1, 2.5, 1e30, math.nan, math.inf, MOST_SEED, MOST_SEED + 1)
OTHERS = (None, "x", b"x", (), {5: 1}, {"recipe.lr": "x"})


PLAIN = {int: int, float: int | float, str: str}
"""Type of an option -> types of its values."""


def fits(value, field) -> bool:
    """Return whether a value has the type and the range of an option."""
    low = DECLARED[field.name].low
    if field.type not in PLAIN:
        return True
    # A truth value is an int of Python, and no number of ours.
    if isinstance(value, bool) or not isinstance(value, PLAIN[field.type]):
        return False
    if low is None:
        return True
    return low <= value <= MOST_SEED


def refusal(study) -> str:
    """Return why a study is refused, "" if it is not."""
    try:
        study.check()
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("field", OF_EACH_TYPE.values(), ids=lambda field: field.name)
def test_an_option_has_the_type_and_the_range_that_it_declares(study, field):
    """Whatever a script gives, it is refused in one line, or it is a value of the field's type."""
    for value in NUMBERS + OTHERS:
        said = refusal(replace(study, **{field.name: value}))
        if said:
            assert field.name in said
            assert "\n" not in said
        else:
            assert fits(value, field), value


# What a script may give by mistake.
NO_POINTS = [
    None,
    "gru",
    ("gru",),
    {"a": "gru"},
    Point("a", "gru"),
    (Point("", "gru"),),
    (Point(None, "gru"),),
    (Point("a", "gru", 5),),
    (Point("a", "gru", search={"x": (1, 0)}),),
    (Point("a", "gru", search={"x": Choice(())}),),
]


@pytest.mark.parametrize("points", NO_POINTS, ids=range(len(NO_POINTS)))
def test_what_are_no_points_is_refused(study, points):
    with pytest.raises(UserError, match=r"point|label|fields|search"):
        replace(study, points=points).check()


@pytest.fixture
def with_a_diverged_run(planner):
    """A point whose first run of the search diverged."""
    point = planner.points[0]
    point.tune_runs[0].status = "diverged"
    return point


@pytest.mark.parametrize("other", ["diverged", "finished", "failed", ""])
def test_a_point_has_diverged_if_all_its_tune_runs_have(with_a_diverged_run, other):
    for run in with_a_diverged_run.tune_runs[1:]:
        run.status = other
    assert with_a_diverged_run.diverged == (other == "diverged")


def test_confirm_runs_decide_whether_a_point_has_diverged(with_a_diverged_run):
    point = with_a_diverged_run
    for run in point.tune_runs:
        run.status = "diverged"
    point.plan_confirm_runs(run.config["setting"], 1)
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
    # An object has no JSON.
    sampler = optuna.samplers.RandomSampler(seed=1)
    pruner = Asha((1,), 2)
    changed = replace(study, sampler=sampler, pruner=pruner)
    asked = written(changed, corpus, corpus_fields, tmp_path)["asked"]
    assert asked["sampler"] == "RandomSampler"
    assert asked["pruner"] == "Asha"


OF_STUDY = {"recipe.lr": {"low": 0.1, "high": 0.2, "log": False}}
OF_POINT = {"recipe.batch": {"values": [4, 8]}}


@pytest.fixture
def of_own_spaces(study, corpus, corpus_fields, tmp_path):
    """The `study.json` of points with the search space of the study, an own one and none."""
    own = {"recipe.batch": Choice((4, 8))}
    points = (
        Point("studied", "DLM46"),
        Point("own", "DLM46", {"cell.cuts": [4]}, search=own),
        Point("nothing", "DLM46", {"cell.cuts": [3]}, search={}),
    )
    search = {"recipe.lr": FloatRange(0.1, 0.2)}
    changed = replace(study, points=points, search=search)
    return written(changed, corpus, corpus_fields, tmp_path)


def test_each_point_lists_its_own_search_space(of_own_spaces):
    spaces = {}
    for point in of_own_spaces["points"]:
        spaces[point["label"]] = point["search"]
    assert spaces["studied"] == OF_STUDY
    assert spaces["own"] == OF_POINT
    assert spaces["nothing"] == {}
    assert spaces["unigram count"] == {}


def test_study_json_has_the_spaces_of_all_points_and_what_was_asked(of_own_spaces):
    assert of_own_spaces["search"] == OF_STUDY | OF_POINT
    assert of_own_spaces["asked"]["search"] == OF_STUDY


SHORT = {
    "lr": (1e-3, 1e-1),
    "drop": (0.0, 0.5),
    "width": (8, 64),
    "norm": ["rms", "layer"],
}
RANGES = {
    "lr": FloatRange(1e-3, 1e-1, log=True),  # it spans a decade
    "drop": FloatRange(0.0, 0.5),
    "width": IntRange(8, 64),
    "norm": Choice(("rms", "layer")),
}


def test_a_pair_is_a_range_and_a_list_is_a_choice(study):
    assert replace(study, search=SHORT).search == RANGES
    assert Point("a", "gru", search=SHORT).search == RANGES


def test_a_search_space_has_words(study):
    words = replace(study, search=SHORT).search_words
    assert words.startswith("lr=0.001:0.1:log, drop=0.0:0.5, width=8:64, norm=rms,lay")


@pytest.mark.parametrize("wrong", [(1, 0), (1, 2, 3), ("a", "b"), [], len])
def test_what_is_no_range_is_refused(study, wrong):
    with raises_user_error("a range is a pair low, high"):
        replace(study, search={"recipe.lr": wrong}).check()
