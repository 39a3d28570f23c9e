"""Console, planner and ranking have one verdict; looks are kept, undecided points get seeds."""

import functools
import random
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lmzoo import Point
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.statistics.compared import ERROR
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.planner import Planner, _losses, _not_comparable, comparison
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.train.run import model_facts
from lmzoo.trainables.resolve import resolve
from tests.cases import cases
from tests.lab.sweep.fake_runs import FakeRun

LOSSES = {2: 3.2, 3: 3.0, 4: 2.95, 5: 3.01}
"""Order of a count model -> its loss, which is the same for every seed."""


EFFECTS = {"wild type": 0.0, "far": 1.0, "same": 0.0, "near": 0.1}
"""Point -> difference of its losses from the wild type, in nats; there is noise."""
SEARCHED = {"recipe.lr": None}


class JudgedRun(FakeRun):
    """A run whose test loss is that of its order, or of its point and its seed."""

    def test(self):
        config = self.folder.config
        label = config["point"]["label"]
        if label in EFFECTS:
            # A point has the same losses in every sweep.
            generator = random.Random(f"{label}/{config['seed']}")
            noise = generator.uniform(0, 0.1)
            loss = 3 + EFFECTS[label] + noise
        else:
            order = config["model"].get("order")
            loss = LOSSES.get(order, 3.5)
        self.training.record["valid_token"] = loss
        return super().test()


def open_run(store, planned, corpus):
    planned.config |= model_facts(planned.config, corpus.task)
    folder = store.run(planned.id)
    return JudgedRun(folder, planned)


@pytest.fixture
def counts(study):
    """A study of models of counts, without a search."""
    points = []
    for order in (3, 2, 4, 5):
        points.append(Point(f"order {order}", "ngram_count", {"order": order}))
    return replace(
        study,
        points=tuple(points),
        reference="order 3",
        search={},
        fields={},
        epochs=1,
        seeds=3,
    )


@pytest.fixture
def run(fake_sweep):
    return functools.partial(fake_sweep, open_run=open_run)


def verdicts_of(planner: Planner) -> dict:
    """Return the verdicts by which a planner asks for more seeds."""
    facts = {}
    for point in planner.points:
        if point.confirm_runs:
            facts[point] = point.point.facts()
    margin = planner.study.margin
    points, found = comparison(facts, planner.reference, planner.looks, margin)
    words = {}
    for point, verdict in zip(points, found.verdict, strict=True):
        words[point.point.label] = str(verdict)
    words[planner.reference.point.label] = "reference"
    return words


def ranking_of(path) -> dict:
    """Return the rows of a ranking by label."""
    folder = load_study(path)
    table = rank_points(folder.runs, folder.events, folder.study)
    return {row["label"]: row for row in table.to_dicts()}


def word_of(row) -> str:
    if row["reference"]:
        return "reference"
    if row["verdict"] is None:
        return ""
    return row["verdict"]


@pytest.fixture
def verdicts(run, corpus, corpus_fields, tmp_path):
    """Sweeps a study and returns its ranking, label -> row; the planner has the same verdicts."""

    def ranked(study):
        assert run(study, path=tmp_path)
        points = resolve(study, corpus, corpus_fields)
        with closing(StudyStore(tmp_path)) as store:
            planner = Planner(study, points, store)
            planned = verdicts_of(planner)
        rows = ranking_of(tmp_path)
        assert planned == {label: word_of(row) for label, row in rows.items()}
        return rows

    return ranked


def test_planner_and_ranking_agree_on_count_models(counts, verdicts):
    rows = verdicts(counts)
    assert rows["order 2"]["verdict"] == "worse"
    assert rows["order 4"]["verdict"] == "better"
    assert rows["order 5"]["verdict"] == "negligible"


def test_a_baseline_is_what_the_study_has_added(counts, run, tmp_path):
    assert run(counts, path=tmp_path)
    points = load_study(tmp_path).study["points"]
    added = [point["label"] for point in points if point["baseline"]]
    assert added == ["unigram count"]


@pytest.fixture
def architectures(study):
    """A study of a reference, a wider model, and two other architectures."""
    points = (
        Point("gru", "gru"),
        Point("wide", "gru", {"width": 6}),
        Point("tanh", "rnn_lm"),
        Point("counts", "ngram_count", {"order": 2}),
    )
    return replace(
        study,
        points=points,
        reference="gru",
        fields={},
        epochs=2,
        seeds=12,
        margin=0.1,
    )


@pytest.mark.parametrize(("search", "samples"), [({}, 5), (SEARCHED, 1)])
def test_architectures_at_one_untuned_rate_have_no_verdict(
    architectures, verdicts, search, samples
):
    """A count model has no rate; a wider model is no other architecture."""
    untuned = replace(architectures, search=search, samples=samples)
    rows = verdicts(untuned)
    assert rows["wide"]["verdict"] == "negligible"
    assert "untuned" not in rows["wide"]["marks"]
    for label in ("tanh", "counts"):
        assert rows[label]["verdict"] is None
        assert "untuned" in rows[label]["marks"]


def test_tuned_architectures_have_verdicts(architectures, verdicts):
    tuned = replace(architectures, search=SEARCHED, samples=3)
    rows = verdicts(tuned)
    assert rows["tanh"]["verdict"] == "negligible"
    assert rows["counts"]["verdict"] == "better"
    for row in rows.values():
        assert "untuned" not in row["marks"]


def test_more_seeds_by_hand_are_a_further_look(counts, run, tmp_path):
    def looks(seeds):
        assert run(replace(counts, seeds=seeds), path=tmp_path)
        study = read_json(tmp_path / STUDY)
        return [(number, error) for number, error, _ in study["looks"]]

    first = (3, ERROR)
    second = (5, 0.005)
    third = (10, 0.0025)
    assert looks(3) == [first]
    assert looks(3) == [first]
    assert looks(5) == [first, second]
    assert looks(3) == [first, second]
    assert looks(10) == [first, second, third]


def test_a_look_that_was_not_made_costs_nothing(counts, corpus, corpus_fields, tmp_path):
    points = resolve(counts, corpus, corpus_fields)
    for seeds in (3, 5):
        changed = replace(counts, seeds=seeds)
        with closing(StudyStore(tmp_path)) as store:
            planner = Planner(changed, points, store)
        (look,) = planner.looks
        assert look.seeds == seeds
        assert look.error == ERROR


@pytest.fixture
def undecided(study, run, tmp_path):
    """The folder of a study that added seeds until its points were decided, or had 24."""
    points = (
        Point("wild type", "DLM46"),
        Point("far", "DLM46", {"cell.cuts": [4]}),
        Point("same", "DLM46", {"cell.cuts": [2]}),
        Point("near", "DLM46", {"cell.cuts": [1]}),
    )
    changed = replace(
        study,
        points=points,
        search={},
        epochs=1,
        seeds=3,
        max_seeds=24,
        margin=0.05,
    )
    assert run(changed, path=tmp_path)
    return tmp_path


def seeds(path) -> dict[str, int]:
    """Return the number of confirm runs of each point."""
    study = read_json(path / STUDY)
    numbers = {}
    for point in study["points"]:
        chosen = study["chosen"][point["id"]]
        numbers[point["label"]] = len(chosen["runs"])
    return numbers


def test_the_looks_of_a_study_that_adds_seeds_are_kept(undecided):
    looks = read_json(undecided / STUDY)["looks"]
    of_points, _, of_reference = zip(*looks, strict=True)
    assert of_points == (3, 6, 12, 24)
    assert of_reference == (5, 10, 21, 42)


def test_a_point_with_a_sign_gets_twice_its_seeds_which_repeat_it(undecided):
    # Three show the sign, three fresh ones repeat it.
    assert seeds(undecided)["far"] == 6


def test_points_and_the_reference_have_the_seeds_of_a_look(undecided):
    found = seeds(undecided)
    of_reference = found.pop("wild type")
    assert of_reference in (10, 21, 42)
    assert of_reference >= max(found.values())
    assert set(found.values()) <= {3, 6, 12, 24}


def fake_point(name, *runs):
    """Return a point with confirm runs, of which those of another numpy are known."""
    upgrade = {"numpy": ("1", "2")}
    changed = {"a1": upgrade, "a2": upgrade, "b1": upgrade}
    return SimpleNamespace(
        point=SimpleNamespace(id=name),
        confirm_runs=[SimpleNamespace(id=run) for run in runs],
        store=SimpleNamespace(changed=changed),
    )


def test_points_of_another_environment_get_no_more_seeds():
    old = fake_point("a", "a1", "a2")
    mixed = fake_point("b", "b1", "b2")
    new = fake_point("new", "n1", "n2")
    points = [old, mixed, new]
    assert _not_comparable(points, old) == [new]
    assert _not_comparable(points, mixed) == []
    assert _not_comparable(points, new) == [old]


def test_a_verdict_ends_a_contrast_in_the_sweep_when_the_table_shows_it(undecided):
    table = ranking_of(undecided)
    found = seeds(undecided)
    assert table["far"]["verdict"] == "worse"
    for label in ("far", "same", "near"):
        if table[label]["verdict"] == "undecided":
            # The most that the study allows.
            assert found[label] == 24


@cases("lab/study/cases.toml", "solved", "accuracy, bound, expected")
def test_the_planner_counts_a_run_that_has_not_solved_its_task(study, accuracy, bound, expected):
    run = PlannedRun("", "", "confirm", 1, {"ceiling": 1.0}, 1)
    run.test_loss = 0.9
    run.test_accuracy = accuracy
    changed = replace(study, solved=bound)
    point = SimpleNamespace(study=changed, confirm_runs=[run])
    assert _losses([point]) == expected
