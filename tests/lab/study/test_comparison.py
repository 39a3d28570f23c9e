"""Console, planner and ranking have one verdict; looks are kept, undecided points get seeds."""

import dataclasses
import functools
import math
from hashlib import md5
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
from tests.lab.sweep.fake_runs import FakeRun

LOSSES = {2: 3.2, 3: 3.0, 4: 2.95, 5: 3.01}
"""Order of a count model -> its loss, which is the same for every seed."""


EFFECTS = {"wild type": 0.0, "far": 1.0, "same": 0.0, "near": 0.1}
"""Point -> difference of its losses from the wild type, in nats; there is noise."""


class JudgedRun(FakeRun):
    """A run whose test loss is that of its order, or of its point and its seed."""

    def test(self):
        config = self.folder.config
        label, loss = config["point"]["label"], LOSSES.get(config["model"].get("order"), 3.5)
        if label in EFFECTS:
            noise = int(md5(f"{label}/{config['seed']}".encode()).hexdigest(), 16) % 1000 / 10000
            loss = 3 + EFFECTS[label] + noise
        self.training.record["valid_token"] = loss
        return super().test()


def open_run(store, planned, corpus, kind=JudgedRun):
    planned.config |= model_facts(planned.config, corpus.task)
    return kind(store.run(planned.id), planned)


@pytest.fixture
def counts(study):
    points = [Point(f"order {n}", "ngram_count", {"order": n}) for n in (3, 2, 4, 5)]
    fields = {"reference": "order 3", "search": {}, "fields": {}, "epochs": 1, "seeds": 3}
    return dataclasses.replace(study, points=tuple(points), **fields)


@pytest.fixture
def run(fake_sweep):
    return functools.partial(fake_sweep, open_run=open_run)


def verdicts_of(planner: Planner) -> dict:
    """Return the verdicts by which a planner asks for more seeds."""
    facts = {point: point.point.facts() for point in planner.points if point.confirm_runs}
    points, found = comparison(facts, planner.reference, planner.looks, planner.study.margin)
    own = dict(zip(points, map(str, found.verdict), strict=True))
    return {**own, planner.reference: "reference"}


@pytest.fixture
def verdicts(run, corpus, corpus_fields, tmp_path):
    """Sweeps a study and returns its ranking, label -> row; the planner has the same verdicts."""

    def ranked(study):
        assert run(study, path=tmp_path)
        store = StudyStore(tmp_path)
        planner = Planner(study, resolve(study, corpus, corpus_fields), store)
        planned = verdicts_of(planner)
        store.close()
        folder = load_study(tmp_path)
        table = rank_points(folder.runs, folder.events, folder.study)
        rows = {row["label"]: row for row in table.to_dicts()}
        assert {p.point.label: verdict for p, verdict in planned.items()} == {
            label: "reference" if row["reference"] else row["verdict"] or ""
            for label, row in rows.items()
        }
        return rows

    return ranked


def test_planner_and_ranking_agree_on_count_models(counts, verdicts, tmp_path):
    """A point that is a count model is compared; a baseline is what the study has added."""
    rows = verdicts(counts)
    ranked = [rows[f"order {n}"]["verdict"] for n in (2, 4, 5)]
    assert ranked == ["worse", "better", "negligible"]
    added = {point["label"]: point["baseline"] for point in load_study(tmp_path).study["points"]}
    assert added == {"unigram count": True} | {f"order {n}": False for n in LOSSES}


@pytest.mark.parametrize("samples", [0, 1, 3])
def test_architectures_at_one_untuned_rate_have_no_verdict(study, verdicts, samples):
    """A count model has no rate; a wider model is no other architecture."""
    points = (
        Point("gru", "gru"),
        Point("wide", "gru", {"width": 6}),
        Point("tanh", "rnn_lm"),
        Point("counts", "ngram_count", {"order": 2}),
    )
    search = {"recipe.lr": None} if samples else {}
    fields = {"samples": samples or 5, "search": search, "fields": {}, "epochs": 2, "seeds": 12}
    fields |= {"margin": 0.1, "points": points, "reference": "gru"}
    rows, untuned = verdicts(dataclasses.replace(study, **fields)), samples < 2
    found = [rows[label]["verdict"] for label in ("wide", "tanh", "counts")]
    assert found == ["negligible", *([None] * 2 if untuned else ["negligible", "better"])]
    marked = {label for label, row in rows.items() if "untuned" in row["marks"]}
    assert marked == ({"tanh", "counts"} if untuned else set())


def test_more_seeds_by_hand_are_a_further_look(counts, run, tmp_path):
    def looks(seeds):
        assert run(dataclasses.replace(counts, seeds=seeds), path=tmp_path)
        return [(n, error) for n, error, _ in read_json(tmp_path / STUDY)["looks"]]

    assert looks(3) == [(3, ERROR)]
    assert looks(3) == [(3, ERROR)]
    assert looks(5) == [(3, ERROR), (5, 0.005)]
    assert looks(3) == [(3, ERROR), (5, 0.005)]
    assert looks(10) == [(3, ERROR), (5, 0.005), (10, 0.0025)]


def test_a_look_that_was_not_made_costs_nothing(counts, corpus, corpus_fields, tmp_path):
    points = resolve(counts, corpus, corpus_fields)
    for seeds in (3, 5):
        store = StudyStore(tmp_path)
        planner = Planner(dataclasses.replace(counts, seeds=seeds), points, store)
        store.close()
        assert [look[:2] for look in planner.looks] == [(seeds, ERROR)]


@pytest.fixture
def undecided(study):
    cuts = ([], [4], [2], [1])
    points = [Point(n, "DLM46", {"cell.cuts": c}) for n, c in zip(EFFECTS, cuts, strict=True)]
    fields = {"search": {}, "epochs": 1, "seeds": 3, "max_seeds": 24, "margin": 0.05}
    return dataclasses.replace(study, points=tuple(points), **fields)


def seeds(path) -> dict[str, int]:
    study = read_json(path / STUDY)
    labels = {point["id"]: point["label"] for point in study["points"]}
    return {labels[point]: len(own["runs"]) for point, own in study["chosen"].items()}


def test_only_undecided_points_and_the_reference_get_more_seeds(undecided, run, tmp_path):
    assert run(undecided, path=tmp_path)
    found = read_json(tmp_path / STUDY)["looks"]
    assert [[n, own] for n, _, own in found] == [[3, 5], [6, 10], [12, 21], [24, 42]]
    found = seeds(tmp_path)
    assert found["far"] == 6, "twice the seeds of a sign: fresh ones repeat it"
    assert found["wild type"] == max(found.values()) > 5
    assert found.pop("wild type") in (10, 21, 42)
    assert all(n in (3, 6, 12, 24) for n in found.values())


def test_points_of_another_environment_get_no_more_seeds():
    changed = {name: {"numpy": ("1", "2")} for name in ("a1", "a2", "b1")}
    store = SimpleNamespace(changed=changed)
    names = {"a": ("a1", "a2"), "b": ("b1", "b2"), "new": ("n1", "n2")}
    points = [
        SimpleNamespace(
            point=SimpleNamespace(id=name),
            confirm_runs=[SimpleNamespace(id=run) for run in runs],
            store=store,
        )
        for name, runs in names.items()
    ]
    found = [_not_comparable(points, reference) for reference in points]
    assert found == [[points[2]], [], [points[0]]]


def test_the_planner_and_the_table_agree(undecided, run, tmp_path):
    """A verdict ends a contrast in the sweep exactly when the table shows it."""
    assert run(undecided, path=tmp_path)
    folder = load_study(tmp_path)
    table = rank_points(folder.runs, folder.events, folder.study)
    found = seeds(tmp_path)
    verdicts = {row["label"]: row["verdict"] for row in table.to_dicts() if row["label"] in EFFECTS}
    assert verdicts["far"] == "worse"
    for label in ("far", "same", "near"):
        assert (verdicts[label] == "undecided") <= (found[label] == 24), label


def test_the_planner_counts_a_run_that_has_not_solved_its_task(study):
    for accuracy, bound, expected in ((0.94, 0.0, math.inf), (0.96, 0.0, 0.9), (0.94, 1.0, 0.9)):
        run = PlannedRun("", "", "confirm", 1, {"ceiling": 1.0}, 1)
        run.test_loss = 0.9
        run.test_accuracy = accuracy
        own = dataclasses.replace(study, solved=bound)
        point = SimpleNamespace(study=own, confirm_runs=[run])
        assert _losses([point]) == expected
