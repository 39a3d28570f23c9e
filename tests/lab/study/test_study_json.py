"""`study.json` contains all that is needed to run the same study again."""

import dataclasses
import sys
from contextlib import closing

import optuna
import pytest

from lmzoo import Point
from lmzoo.base.search_space import Choice, FloatRange
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep import command, main
from lmzoo.trainables.resolve import resolve


def written(study, corpus, corpus_fields, path) -> dict:
    """Return the study.json of a sweep that has just started."""
    with closing(StudyStore(path)) as store:
        Planner(study, resolve(study, corpus, corpus_fields), store)
    return read_json(path / STUDY)


@pytest.fixture
def run_main(study, tmp_path, monkeypatch):
    """Runs the study's command line with these options; returns its study.json."""

    def run(*options: str) -> dict:
        monkeypatch.setattr(sys, "argv", ["study", "--storage", str(tmp_path), "--json", *options])
        monkeypatch.setattr(command.Sweep, "_train", lambda *_: 0)
        with pytest.raises(SystemExit) as stop:
            main(study)
        assert not stop.value.code
        (store,) = tmp_path.glob("toy-text-*")
        return read_json(store / STUDY)

    return run


def test_study_json_contains_the_options(run_main, study):
    content = run_main(
        *("--seed", "3", "--recipe", "published", "--set", "model.emission.components=2"),
        *("--search-space", "recipe.lr=off", "--search-space", "recipe.batch=4,8"),
        *("--parallel", "3", "--sampler", "qmc", "--pruner", "none"),
    )
    asked = content["asked"]
    assert (asked["corpus"], asked["recipe"], asked["seed"]) == (study.corpus, "published", 3)
    assert asked["fields"] == {**study.fields, "model.emission.components": 2}
    assert asked["search"] == {"recipe.batch": {"values": [4, 8]}}
    assert asked["off"] == ["recipe.lr"]
    assert (asked["parallel"], asked["sampler"], asked["pruner"]) == (3, "qmc", "none")


def test_study_json_names_the_class_of_an_object(study, corpus, corpus_fields, tmp_path):
    sampler = optuna.samplers.RandomSampler(seed=1)
    changed = dataclasses.replace(study, sampler=sampler, pruner=optuna.pruners.MedianPruner())
    asked = written(changed, corpus, corpus_fields, tmp_path)["asked"]
    assert (asked["sampler"], asked["pruner"]) == ("RandomSampler", "MedianPruner")


def test_a_field_that_the_study_does_not_search_is_not_listed_as_off(run_main):
    content = run_main("--search-space", "model.width=off")
    assert content["asked"]["off"] == []
    assert content["asked"]["search"] == {"recipe.lr": None}


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
