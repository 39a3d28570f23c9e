"""What study.json says is enough to ask for the same study again."""

import dataclasses
import json
import sys
from contextlib import closing

import pytest

from lmzoo.search_space import Choice, FloatRange
from lmzoo.store.records import STUDY, read_json
from lmzoo.sweep import Point, main
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore


def said(study, corpus, corpus_fields, path) -> dict:
    with closing(StudyStore(path)) as store:
        Planner(study, resolve(study, corpus, corpus_fields), corpus, store)
    return read_json(path / STUDY)


@pytest.fixture
def started(study, tmp_path, monkeypatch):
    """The description that the study's command line writes with these options."""

    def start(*options: str) -> dict:
        monkeypatch.setattr(sys, "argv", ["study", "--storage", str(tmp_path), "--json", *options])
        monkeypatch.setattr(sys.modules["lmzoo.sweep.main"], "_work", lambda *_, **__: None)
        with pytest.raises(SystemExit) as stop:
            main(study)
        assert not stop.value.code
        return read_json(tmp_path / "toy-text" / STUDY)

    return start


def test_what_the_options_decided_is_there(started, study):
    told = started(
        *("--seed", "3", "--recipe", "published", "--set", "model.emission.components=2"),
        *("--search-space", "recipe.lr=off", "--search-space", "recipe.batch=4,8"),
    )
    assert told["asked"] == {
        "corpus": study.corpus,
        "recipe": "published",
        "seed": 3,
        "parameters": 0,
        "fields": {**study.fields, "model.emission.components": 2},
        "search": {"recipe.batch": {"values": [4, 8]}},
        "off": ["recipe.lr"],
    }


def test_what_nobody_asked_for_is_off_by_nobody(started):
    told = started("--search-space", "model.width=off")
    assert told["asked"]["off"] == []
    assert told["asked"]["search"] == {"recipe.lr": None}


def test_asking_for_what_it_says_makes_the_same_study(started):
    options = ["--seed", "3", "--search-space", "recipe.clip=0.1:10:log", "--epochs", "2"]
    first = started(*options)
    asked, again = first["asked"], ["--epochs", str(first["budget"]["epochs"])]
    again += ["--recipe", asked["recipe"], "--seed", str(asked["seed"])]
    for path, value in asked["fields"].items():
        again += ["--set", f"{path}={json.dumps(value)}"]
    for path, where in asked["search"].items():
        if where:
            again += ["--search-space", f"{path}={where['low']}:{where['high']}:log"]
    assert started("--seed", "4", "--epochs", "3") != first
    assert started(*again) == first


def test_each_point_says_what_is_searched_for_it(study, corpus, corpus_fields, tmp_path):
    points = (
        Point("studied", "DLM46"),
        Point("own", "DLM46", {"cell.cuts": [4]}, search={"recipe.batch": Choice((4, 8))}),
        Point("nothing", "DLM46", {"cell.cuts": [3]}, search={}),
    )
    search = {"recipe.lr": FloatRange(0.1, 0.2)}
    changed = dataclasses.replace(study, points=points, search=search)
    told = said(changed, corpus, corpus_fields, tmp_path)
    lr, batch = {"low": 0.1, "high": 0.2, "log": False}, {"values": [4, 8]}
    own = {point["label"]: point["search"] for point in told["points"]}
    assert own["studied"] == {"recipe.lr": lr}
    assert own["own"] == {"recipe.batch": batch}
    assert own["nothing"] == {} == own["unigram count"]
    assert told["search"] == {"recipe.lr": lr, "recipe.batch": batch}
    assert told["asked"]["search"] == {"recipe.lr": lr}
