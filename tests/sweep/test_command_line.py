"""Every study's command line: a dry run, and one clear line for what is wrong."""

import dataclasses
import json
import runpy
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo.contract import MODELS
from lmzoo.data.open import open_corpus
from lmzoo.store.records import STUDY, read_json
from lmzoo.sweep import main
from lmzoo.sweep.parameter_budget import count
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import named, resolve
from lmzoo.sweep.study_store import StudyStore

SCRIPTS = sorted(Path(__file__).parents[2].joinpath("sweeps").glob("[!_]*.py"))
FLOORS = ("unigram count", "Kneser-Ney 5-gram")
STUDIES = [path for path in SCRIPTS if "main(STUDY)" in path.read_text()]


def _run(study, options, monkeypatch, capsys) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["study", *options])
    with pytest.raises(SystemExit) as stop:
        main(study)
    out = capsys.readouterr()
    return stop.value.code or 0, out.out, out.err


def test_a_dry_run_says_what_is_owed_and_trains_nothing(study, tmp_path, monkeypatch, capsys):
    options = ["--dry-run", "--storage", str(tmp_path), "--max-concurrent", "2"]
    code, out, _ = _run(study, options, monkeypatch, capsys)
    assert code == 0
    assert "wild type: 6 runs, at most 24 epochs" in out
    assert "cut 3,2,4,5 ≡ cut 2,7" in out
    assert not list(tmp_path.iterdir()), "it only looks"


def test_options_reach_the_study(study, tmp_path, monkeypatch, capsys):
    options = ["--dry-run", "--json", "--storage", str(tmp_path), "--max-concurrent", "3"]
    options += [
        "--seeds",
        "7",
        "--samples",
        "5",
        "--epochs",
        "2",
        "--search-space",
        "recipe.lr=off",
    ]
    code, out, _ = _run(study, options, monkeypatch, capsys)
    told = json.loads(out)
    assert (code, told["slots"]) == (0, 3)
    assert [(p["runs"], p["epochs"]) for p in told["points"]] == [(7, 14)] * (3 + len(FLOORS))


@pytest.mark.parametrize(
    ("points", "owing"),
    [
        ("", ["wild type", "cut 4", "cut 3,2,4,5"]),
        ("cut 4", ["cut 4"]),
        ("cut 3,2,4,5, wild type", ["wild type", "cut 3,2,4,5"]),
        ("cut 2,7,cut 2,7", ["cut 3,2,4,5"]),
    ],
)
def test_only_the_points_asked_for_are_owed(points, owing, study, tmp_path, monkeypatch, capsys):
    """Labels have commas too; an alias is its point; all of them stay in the study."""
    options = ["--dry-run", "--json", "--storage", str(tmp_path), "--points", points]
    code, out, _ = _run(study, options, monkeypatch, capsys)
    assert code == 0
    assert [point["point"] for point in json.loads(out)["points"]] == [*owing, *FLOORS]


def test_a_point_trained_alone_has_the_runs_it_has_among_the_others(
    study, corpus, corpus_fields, tmp_path
):
    """And the others stay in the study."""
    points, runs = resolve(study, corpus, corpus_fields), []
    for number, wanted in enumerate(("", "cut 4")):
        with closing(StudyStore(tmp_path / str(number))) as store:
            agenda = Planner(study, points, corpus, store, named(study, corpus, wanted))
            jobs = list(iter(agenda.next, None))
        trained = {"cut 4", *FLOORS} if wanted else {p.label for p in points}
        assert {job.label for job in jobs} == trained
        told = read_json(tmp_path / str(number) / STUDY)
        labels = ["wild type", "cut 4", "cut 3,2,4,5", *FLOORS]
        assert [point["label"] for point in told["points"]] == labels
        assert told["reference"] == told["points"][0]["id"]
        runs.append([job.run for job in jobs if job.label == "cut 4"])
    assert runs[0] == runs[1] != []


def test_a_budget_of_parameters_decides_the_widths(study, tmp_path, monkeypatch, capsys):
    fields = {path: value for path, value in study.fields.items() if path != "model.width"}
    study, seen = dataclasses.replace(study, fields=fields), []

    def resolved(*words):
        seen.append(resolve(*words))
        return seen[-1]

    monkeypatch.setattr(sys.modules["lmzoo.sweep.main"], "resolve", resolved)
    for parameters in (1000, 2000):
        options = ["--dry-run", "--storage", str(tmp_path), "--parameters", str(parameters)]
        assert _run(study, options, monkeypatch, capsys)[0] == 0
        task = open_corpus(seen[-1][0].corpus_config).task
        for point in (point for point in seen[-1] if not point.floor):
            assert count(point.model, task) <= parameters
            wider = {**MODELS.write(point.model), "width": point.model.width + 1}
            assert count(MODELS.read(wider), task) > parameters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--points", "wild typ"], "no point 'wild typ'; near: wild type"),
        (["--points", "cut 4,cut 3,2,4"], "no point 'cut 3'; near: cut 2,7, cut 3,2,4,5, cut 4"),
        (["--points", "xyz"], "no point 'xyz'; known: wild type, cut 4, "),
        (["--parameters", "-1"], "greater than or equal to 0"),
        (["--parameters", "9000"], "model.width=4 contradicts the budget of 9,000 parameters"),
        (["--corpus", "captoins"], "no corpus 'captoins'; near: captions"),
        (["--corpus", "text:/no/such/file"], "/no/such/file"),
        (["--recipe", "fast"], "no recipe 'fast'"),
        (["--set", "model.width"], "'model.width' is not FIELD=VALUE"),
        (["--set", "model.width=0"], "got 0"),
        (["--set", "model.widht=3"], "no field 'widht'"),
        (["--set", "width=3"], "does not start with"),
        (["--search-space", "recipe.lr=5:1"], "'5:1' is not low:high"),
        (["--search-space", "recipe.lr"], "is not FIELD=LOW:HIGH"),
        (["--search-space", "recipe.speed=1:2"], "no field 'recipe.speed'"),
        (["--seeds", "0"], "greater than or equal to 1"),
        (["--epohcs", "3"], "--epohcs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    options, message, study, tmp_path, monkeypatch, capsys
):
    code, _, err = _run(study, ["--storage", str(tmp_path), *options], monkeypatch, capsys)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_every_study_resolves_on_its_own_corpus(path, tmp_path, monkeypatch, capsys):
    """Its rows, fields and ranges exist, its reference is one of its points."""
    from lmzoo.data.open import open_corpus
    from lmzoo.sweep.resolve import corpus_config, resolve

    study = runpy.run_path(str(path))["STUDY"]
    assert study.name == path.stem
    fields = corpus_config(study, study.fields)
    points = resolve(study, open_corpus(fields), fields)
    labels = {label for p in points for label in (p.label, *p.aliases)}
    assert study.reference in ("", *labels)
    assert len(labels) == len(study.points)
