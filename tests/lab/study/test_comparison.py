"""The console, the planner and the ranking have one verdict; a study keeps the looks it made."""

import dataclasses
import functools

import pytest

from lmzoo import Point
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.statistics.compared import ERROR
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep.screen.console import so_far
from lmzoo.train.run_config import model_facts
from lmzoo.trainables.resolve import resolve
from tests.lab.sweep.fake_runs import FakeRun
from tests.lab.sweep.local_sweep import sweep

LOSSES = {2: 3.2, 3: 3.0, 4: 2.95, 5: 3.01}
"""Order of a count model -> its loss, which is the same for every seed."""


class CountRun(FakeRun):
    """A run whose test loss is that of its order."""

    def test(self):
        model = self.folder.config["model"]
        self.training.record["valid_token"] = LOSSES.get(model.get("order"), 3.5)
        return super().test()


def open_run(store, planned, corpus):
    planned.config |= model_facts(planned.config, corpus.task)
    return CountRun(store.run(planned.id), planned)


@pytest.fixture
def counts(study):
    points = [Point(f"order {n}", "ngram_count", {"order": n}) for n in (3, 2, 4, 5)]
    fields = {"reference": "order 3", "search": {}, "fields": {}, "epochs": 1, "seeds": 3}
    return dataclasses.replace(study, points=tuple(points), **fields)


@pytest.fixture
def run(corpus, corpus_fields):
    return functools.partial(sweep, corpus=corpus, fields=corpus_fields, open_run=open_run)


@pytest.fixture
def verdicts(run, corpus, corpus_fields, tmp_path):
    """Return a function that sweeps a study and returns its ranking, label -> row.

    The console has the same verdicts.
    """

    def ranked(study):
        assert run(study, path=tmp_path)
        store = StudyStore(tmp_path)
        planner = Planner(study, resolve(study, corpus, corpus_fields), store)
        for _ in planner.points:
            console = so_far(planner)
        store.close()
        folder = load_study(tmp_path)
        table = rank_points(folder.runs, folder.events, folder.study)
        rows = {row["label"]: row for row in table.to_dicts()}
        assert {p.point.label: v.verdict for p, v in console.items()} == {
            label: "reference" if row["reference"] else row["verdict"] or ""
            for label, row in rows.items()
        }
        return rows

    return ranked


def test_console_and_ranking_agree_on_count_models(counts, verdicts, tmp_path):
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
    fields = {"samples": samples or 5, "search": search, "fields": {}, "epochs": 2, "seeds": 3}
    rows = verdicts(dataclasses.replace(study, points=points, reference="gru", **fields))
    untuned = samples < 2
    assert [rows[label]["verdict"] for label in ("wide", "tanh", "counts")] == [
        "negligible",
        None if untuned else "negligible",
        None if untuned else "better",
    ]
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
