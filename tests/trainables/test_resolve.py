"""Points become runs: fields, sizes, names; equal points are one, bad ones are refused."""

import dataclasses
import itertools
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from lmzoo import Point, Study, zoo
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange
from lmzoo.cells.base import CELLS
from lmzoo.contract import LanguageModel, Task
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.store.records import CONFIG, STUDY, RunFolder, epoch_records, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.laws import learned as learning
from lmzoo.laws.probes import disturbed
from lmzoo.trainables.parameter_budget import count_parameters, fit_width
from lmzoo.trainables.resolve import (
    check_settings,
    corpus_config,
    resolve,
    store_folder,
    store_name,
)
from lmzoo.trainables.rows import check_points
from sweeps import gru_factorial
from tests.cases import cases
from tests.factorial import MGU, mgu
from tests.lab.sweep.local_sweep import sweep
from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import sentences as sentences
from tests.toy_study import study as study
from tests.user_errors import raises_user_error

STARTS = tuple(Point(str(n), "DLM46", {"starts": n}) for n in (1, 2))


@pytest.fixture
def resolved(study, corpus, corpus_fields):
    """Return a function that resolves the study with some changes."""

    def resolve_with(needed=None, **changes):
        changed = dataclasses.replace(study, **changes)
        return resolve(changed, corpus, corpus_fields, needed)

    return resolve_with


def compared(points):
    return [point for point in points if not point.baseline]


def test_equal_points_become_one_point_with_an_alias(resolved):
    points = compared(resolved())
    assert [point.label for point in points] == ["wild type", "cut 4", "cut 3,2,4,5"]
    # The two cuts leave the same function.
    assert points[2].aliases == ["cut 2,7"]


def test_common_fields_and_own_fields_are_both_applied(resolved):
    wild, cut, *_ = resolved()
    assert wild.model.width == cut.model.width == 4
    assert wild.model.emission.components == 3
    assert list(map(str, cut.model.cell.cuts)) == ["state_to_candidate"]
    # A field of the study, not of a point.
    assert wild.recipe.batch == 16


def ids(points):
    return {point.id for point in compared(points)}


def test_the_point_id_does_not_depend_on_the_budget(resolved):
    assert ids(resolved(epochs=40, samples=9, seeds=7)) == ids(resolved())


def test_the_point_id_depends_on_the_ranges(resolved):
    wider = resolved(search={"recipe.lr": FloatRange(1e-4, 1.0, log=True)})
    assert ids(wider).isdisjoint(ids(resolved()))


UNIT = FloatRange(0.0, 1.0)
INVALID = {
    "field 'width' does not start with": {"fields": {"width": 3}},
    "no search range is known for 'recipe.batch'": {"search": {"recipe.batch": None}},
    "no field 'recipe.speed'": {"search": {"recipe.speed": UNIT}},
    "no recipe 'fast'": {"recipe": "fast"},
    "has no points": {"points": ()},
}


@pytest.mark.parametrize("message", INVALID)
def test_an_invalid_study_is_refused_in_one_line(resolved, message):
    with raises_user_error(message):
        resolved(**INVALID[message])


def test_what_points_compare_is_not_searched(resolved):
    with raises_user_error("point '2' differs from '1' in model.starts only"):
        resolved(points=STARTS, search={"model.starts": None})


@cases("trainables/cases.toml", "wrong_points", "row, fields, message")
def test_a_wrong_point_is_refused_in_one_line(resolved, row, fields, message):
    wrong = Point("x", row, fields)
    with pytest.raises(UserError, match=message) as caught:
        resolved(points=(wrong,))
    assert "\n" not in str(caught.value)


def test_a_model_without_next_tokens_is_refused_on_a_task_that_scores_some_tokens():
    fields = {"name": "parity", "train": 8, "valid": 4, "test": 4}
    task = open_corpus(fields)
    # An autoencoder reads the whole sequence first.
    points = (Point("recurrent", "gru"), Point("autoencoder", "gru_autoencoder"))
    study = Study(name="toy", question="?", points=points)
    with pytest.raises(UserError, match=r"^point 'autoencoder': .* no distribution of the next to"):
        resolve(study, task, fields)
    first, *_ = resolve(study, task, fields, ["recurrent"])
    assert first.label == "recurrent"


# A transformer, which has no initial states.
MINGPT = Point("minGPT", "DLM40")


@pytest.fixture
def with_starts(study):
    """Changes of the study with a transformer, which has no field `starts`."""
    fields = {"model.width": 4, "model.starts": 2}
    return {"points": study.points + (MINGPT,), "fields": fields}


def test_a_point_that_is_not_needed_need_not_accept_the_common_fields(resolved, with_starts):
    points = resolved({"wild type"}, **with_starts)
    labels = {point.label for point in points}
    assert labels >= {"wild type", "cut 4"}
    for point in points:
        assert "minGPT" not in point.labels


@pytest.mark.parametrize("needed", [None, {"minGPT"}])
def test_a_needed_point_must_accept_the_common_fields(resolved, with_starts, needed):
    with pytest.raises(UserError, match="point 'minGPT': no field 'starts'"):
        resolved(needed, **with_starts)


@pytest.fixture
def with_counts(study):
    """The points of the study and one that equals a baseline."""
    counts = Point("counts", "ngram_count", {"order": 1})
    return study.points + (counts,)


def test_a_baseline_under_another_label_is_compared(resolved, with_counts):
    points = resolved(points=with_counts)
    assert sum(point.baseline for point in points) == 1


def test_a_baseline_under_another_label_is_always_planned(study, resolved, with_counts, tmp_path):
    points = resolved({"cut 4"}, points=with_counts)
    assert sum(point.baseline for point in points) == 2
    with closing(StudyStore(tmp_path)) as store:
        planner = Planner(study, points, store, {"cut 4"})
        first, second, _ = planner.points
    # The third is the other baseline.
    assert first.point.label == "cut 4"
    assert second.point.label == "counts"


def test_study_json_lists_the_points_that_were_left_out(study, resolved, tmp_path):
    both = dataclasses.replace(study, points=study.points + (MINGPT,))
    points = resolved({"wild type"}, points=both.points)
    with closing(StudyStore(tmp_path)) as store:
        Planner(both, points, store, {"wild type"})
    written = read_json(tmp_path / STUDY)
    assert written["left_out"] == ["minGPT"]


CUTS = (Point("wild type", "DLM46"), Point("cut 4", "DLM46", {"cell.cuts": [4]}))
ROWS = (Point("LSTM", "DLM26"), Point("GRU", "DLM44"))
MUTANT = {"name": "mgru", "mutations": 4}
WHOLE = (Point("MGRU", "DLM47"), Point("cut", "DLM47", {"cell": MUTANT}))
SIZES = (Point("E=8", "DLM46", {"width": 8}), Point("E=16", "DLM46"))


def set_field(points, path):
    study = Study(name="toy", question="?", points=points)
    check_settings(study, {path: 1})


COMPARED = [
    (CUTS, "model.cell", "'cut 4'"),
    (CUTS, "model.cell.cuts", "'cut 4'"),
    (ROWS, "model.cell", "'LSTM', 'GRU'"),
    (WHOLE, "model.cell.carry", "'cut'"),
    (SIZES, "model.width", "'E=8'"),
]


@pytest.mark.parametrize(("points", "path", "label"), COMPARED)
def test_a_setting_that_replaces_what_points_compare_is_refused(points, path, label):
    with pytest.raises(UserError, match=rf"--set {path}: .*\({label}\); drop the option"):
        set_field(points, path)


# Two of them only look like the cell of the model.
OF_OTHER_PARTS = ["model.width", "model.norm", "recipe.lr", "corpus.cell", "model.cellar"]


@pytest.mark.parametrize("path", OF_OTHER_PARTS)
def test_settings_of_another_part_are_accepted(path):
    set_field(CUTS, path)


def test_settings_of_rows_and_of_a_single_point_are_accepted():
    set_field(ROWS, "model.emission.components")
    set_field(CUTS[:1], "model.cell")


@pytest.fixture
def cosine(study):
    """The fields of the study with a rate that falls."""
    return study.fields | {"recipe.schedule": "cosine"}


RATE = {"recipe.lr": 0.01}


def run_of(points, setting=RATE):
    """Return the identity of the first run of the first point."""
    config = points[0].run_config(setting, 1)
    return config["run"]


def test_the_length_does_not_decide_a_run_whose_rate_is_constant(resolved):
    short = resolved(epochs=4)
    long = resolved(epochs=8)
    assert run_of(short) == run_of(long)


def test_the_length_decides_a_run_whose_rate_falls(resolved, cosine):
    short = resolved(epochs=4, fields=cosine)
    long = resolved(epochs=8, fields=cosine)
    assert run_of(short) != run_of(long)


@pytest.mark.parametrize("path", ["recipe.schedule", "recipe.schedule_epochs", "recipe.final_lr"])
def test_runs_at_different_rates_are_not_compared(path, resolved, cosine):
    with pytest.raises(UserError, match=f"{path} is searched, .*; add --pruner none"):
        resolved(search={path: FloatRange(0.1, 0.5)}, fields=cosine)


def test_a_constant_rate_is_searched_beside_falling_ones(resolved, cosine):
    """The fields that a constant rate cannot have are dropped, so its settings are one run."""
    schedules = ("constant", "cosine")
    search = {"recipe.schedule": Choice(schedules), "recipe.final_lr": FloatRange(0.1, 0.2)}
    points = resolved(search=search, pruner="none", fields=cosine)
    runs = set()
    for schedule, share in itertools.product(schedules, (0.1, 0.2)):
        setting = {"recipe.schedule": schedule, "recipe.final_lr": share}
        runs.add(run_of(points, setting))
    # One constant rate and two that fall.
    assert len(runs) == 3


@pytest.fixture
def short(study, cosine):
    """A study of one point and two epochs, over which the rate falls."""
    budget = {"epochs": 2, "samples": 2, "seeds": 1, "pruner": "none"}
    return dataclasses.replace(study, points=study.points[:1], fields=cosine, **budget)


def test_runs_train_as_long_as_their_schedule(short, corpus, corpus_fields, tmp_path):
    assert sweep(short, corpus, corpus_fields, tmp_path)
    stages = set()
    for path in tmp_path.glob(f"*/{CONFIG}"):
        config = read_json(path)
        if config["model"]["name"] == "ngram_count":
            # Counts have no rate.
            continue
        records = RunFolder(path.parent).records()
        epochs = len(epoch_records(records))
        assert config["recipe"]["schedule_epochs"] == epochs == 2
        stages.add(config["stage"])
    assert stages == {"tune", "confirm"}


def test_a_longer_schedule_is_another_point(resolved, cosine):
    short = resolved(epochs=2, fields=cosine)
    longer = resolved(epochs=3, fields=cosine)
    assert ids(longer).isdisjoint(ids(short))


def test_a_schedule_that_ends_before_the_budget_is_refused(resolved, cosine):
    fields = cosine | {"recipe.schedule_epochs": 2}
    with pytest.raises(UserError, match="ends before the budget of 3 epochs"):
        resolved(epochs=3, fields=fields)


TASK = Task(vocab=50, length=6)
BUDGET = 5000


def assert_largest(fitted, wider):
    """Assert that only the first is within the budget."""
    assert count_parameters(fitted, TASK) <= BUDGET
    assert count_parameters(wider, TASK) > BUDGET


@pytest.mark.parametrize("name", ["rnn_lm", "chain_slot_ngram", "transformer_decoder"])
def test_the_width_is_the_largest_within_the_budget(name):
    config = zoo.config(name)
    fitted = fit_width(config, TASK, BUDGET)
    wider = zoo.config(name, width=fitted.width + 1)
    assert_largest(fitted, wider)


def test_the_width_of_a_wrapped_model_is_fitted():
    config = zoo.config("backward_lm")
    fitted = fit_width(config, TASK, BUDGET)
    wider = zoo.config("backward_lm", reader={"width": fitted.reader.width + 1})
    assert_largest(fitted, wider)


@pytest.mark.parametrize("name", ["ngram_count", "pcfg"])
def test_a_model_without_a_width_is_unchanged(name):
    config = zoo.config(name)
    assert fit_width(config, TASK, 10) == config


BUDGETS = {
    50: "recurrent_lm has more than 50 parameters at width 2",
    10**12: "recurrent_lm has less than 1,000,000,000,000 parameters",
}


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_budget_that_no_width_has_is_refused(budget):
    config = zoo.config("rnn_lm")
    with pytest.raises(UserError, match=BUDGETS[budget]):
        fit_width(config, TASK, budget)


def test_the_store_of_a_corpus_without_a_file_has_its_name():
    fields = {"name": "captions", "split": "a"}
    assert store_name("toy", fields, "012345") == "toy-captions"


@cases("trainables/cases.toml", "store_names", "path, name")
def test_the_name_of_a_store_is_readable_and_short(path, name):
    fields = {"name": "text", "path": path}
    assert store_name("toy", fields, "0123456789") == name


def test_a_text_has_one_store_whatever_its_path_is(tmp_path):
    def store(fingerprint: str = "0123456789", study: str = "toy", **fields: str) -> Path:
        return store_folder(tmp_path, study, {"name": "text"} | fields, fingerprint)

    first = store(path="a/my.txt")
    # A store is found again by the content of its text.
    first.mkdir()
    assert store(path="./other.txt") == first
    assert store("1123456789", path="a/my.txt") != first
    assert store(path="a/my.txt", study="to") != first
    assert store() == tmp_path / "toy-text"


@pytest.fixture(scope="module")
def factorial():
    """Return the points of the factorial study, on few sentences."""
    study = gru_factorial.STUDY
    fields = corpus_config(study, study.fields)
    few = open_corpus(fields | {"train": 10, "valid": 1, "test": 1})
    return compared(resolve(study, few, fields))


def test_every_point_of_the_factorial_study_is_a_distinct_mutant(factorial):
    cells = [type(point.model.cell).__qualname__ for point in factorial]
    assert cells == ["MGU.Config"] * 92 + ["MGRU.Config"] * 148
    for point in factorial:
        # Equal points would be one with an alias.
        assert not point.aliases
        assert point.model.width == point.model.emission.components == 16


def test_every_point_of_the_factorial_study_reads_its_input(factorial):
    for point in factorial:
        cell = CELLS.build(point.model.cell, 1, 2)
        assert not cell.input_blind


def test_the_cuts_of_the_factorial_study_are_those_of_all_patterns(factorial):
    names = np.array(MGU)
    expected = {frozenset(names[pattern]) for pattern in mgu()}
    # The first 92 points are those of the MGU.
    found = {frozenset(map(str, point.model.cell.cuts)) for point in factorial[:92]}
    assert found == expected


def test_points_that_learn_have_no_warning(resolved):
    assert check_points(resolved()) == []


def test_points_that_are_not_checked_for_want_of_time_are_counted(resolved, monkeypatch):
    points = resolved()
    count = len(points)
    # The time is over before the first point.
    monkeypatch.setattr("lmzoo.trainables.rows.CHECK_SECONDS", -1.0)
    (line,) = check_points(points)
    assert line == f"{count} of {count} points are not checked for dead parameters"


@pytest.fixture
def dead(monkeypatch):
    """The first parameter of every model has no gradient."""

    def without_gradient(model: LanguageModel) -> LanguageModel:
        changed = disturbed(model)
        next(changed.parameters()).register_hook(torch.zeros_like)
        return changed

    monkeypatch.setattr(learning, "disturbed", without_gradient)
    learning._learned.cache_clear()
    yield
    learning._learned.cache_clear()


@pytest.mark.usefixtures("dead")
def test_what_does_not_learn_is_said(study, resolved, tmp_path):
    points = resolved()
    lines = check_points(points)
    assert "parameters do not learn: " in lines[0]
    with closing(StudyStore(tmp_path)) as store:
        Planner(study, points, store)
    written = read_json(tmp_path / STUDY)
    assert written["data"]["warnings"] == lines


def width_in_budget(points, corpus):
    fitted = fit_width(points[0].model, corpus.task, 700)
    return fitted.width


def test_what_does_not_learn_is_not_paid_for(resolved, corpus, request):
    points = resolved()
    paid = width_in_budget(points, corpus)
    request.getfixturevalue("dead")
    # What does not learn leaves room for a wider model.
    assert width_in_budget(points, corpus) > paid


def test_a_point_that_changes_nothing_is_said(resolved, monkeypatch):
    same = learning.Learned(frozenset(), "equal")
    monkeypatch.setattr("lmzoo.trainables.rows.learned", lambda *_: same)
    wild, cut, *_ = resolved()
    assert check_points([wild, cut]) == [f"{cut.display_label} computes the same as wild type"]
