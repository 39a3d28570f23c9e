"""The command line of a study: its options, and one line for invalid input."""

import dataclasses
import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo import Point, main
from lmzoo.contract import MODELS
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.cli.sweep import find_studies
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.parameter_budget import count_parameters
from lmzoo.trainables.resolve import corpus_config, resolve, select_labels
from tests.cases import cases, rows

SCRIPTS = sorted(Path(__file__).parents[3].joinpath("sweeps").glob("[!_]*.py"))
SHOWN = [
    "wild type",
    "cut state_to_candidate (4)",
    "cut input_to_candidate (3) + gate_bias (2) + state_to_candidate (4) + candidate_bias (5)",
]
"""Labels of the points of the toy study with the names of their cuts."""
BASELINE_LABELS = ["unigram count", "Kneser-Ney 5-gram"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a study's command line; returns its exit code, stdout and stderr."""

    def run_main(study, *options: str) -> tuple[int, str, str]:
        command = ["study", "--out", str(tmp_path)] + list(options)
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stop:
            main(study)
        output = capsys.readouterr()
        code = stop.value.code or 0
        return code, output.out, output.err

    return run_main


def test_a_dry_run_prints_the_pending_runs(study, tmp_path, run):
    place = tmp_path / "a folder"
    code, out, _ = run(study, "--dry-run", "--max-concurrent", "2", "--out", str(place))
    question, *_ = out.splitlines()
    assert code == 0
    assert question == study.question
    assert f"lmzoo plan '{place}/" in out, "a command that can be copied: quoted, on one line"
    assert "wild type: 10 runs, at most 40 epochs" in out
    # A long label is broken.
    words = " ".join(out.split())
    assert f"{SHOWN[2]} ≡ cut gate_bias (2) + write (7):" in words


def test_a_dry_run_counts_runs_and_epochs_and_trains_nothing(study, tmp_path, run):
    budget = ["--seeds", "7", "--samples", "5", "--epochs", "2", "--search-space", "recipe.lr=off"]
    code, out, _ = run(study, "--dry-run", "--json", "--max-concurrent", "3", *budget)
    result = json.loads(out)
    first, *others = result["points"]
    assert code == 0
    # As many as may run at once.
    assert result["slots"] == 3
    assert first["runs"] == 10
    assert first["epochs"] == 20
    # Two cuts and two baselines.
    assert len(others) == 4
    for point in others:
        assert point["runs"] == 7
        assert point["epochs"] == 14
    assert not list(tmp_path.iterdir()), "a dry run wrote files"


@cases("lab/sweep/cases.toml", "selections", "selection, pending")
def test_only_the_selected_points_are_pending(study, run, selection, pending):
    """Labels may contain commas, and an alias selects its point."""
    code, out, _ = run(study, "--dry-run", "--json", "--points", selection)
    labels = [point["point"] for point in json.loads(out)["points"]]
    expected = [SHOWN[number] for number in pending]
    assert code == 0
    assert labels == expected + BASELINE_LABELS


@pytest.fixture
def runs_of(study, corpus, corpus_fields, tmp_path):
    """Return a function that plans a selection; `study.json` is in the folder of the test."""

    def ready(selection):
        points = resolve(study, corpus, corpus_fields)
        with closing(StudyStore(tmp_path)) as store:
            needed = select_labels(study, corpus, selection)
            return Planner(study, points, store, needed).ready()

    return ready


def ids_of_cut_4(runs):
    return [run.id for run in runs if run.label == "cut 4"]


def test_a_selected_point_has_the_same_runs(runs_of):
    selected = runs_of("cut 4")
    assert {run.label for run in selected} == {"cut 4", *BASELINE_LABELS}
    ids = ids_of_cut_4(selected)
    assert ids
    assert ids_of_cut_4(runs_of("")) == ids


@pytest.mark.parametrize("selection", ["", "cut 4"])
def test_study_json_lists_all_points(runs_of, tmp_path, selection):
    runs_of(selection)
    content = read_json(tmp_path / STUDY)
    labels = [point["label"] for point in content["points"]]
    assert labels == ["wild type", "cut 4", "cut 3,2,4,5"] + BASELINE_LABELS
    first, *_ = content["points"]
    assert content["reference"] == first["id"]


@pytest.mark.parametrize("parameters", [1000, 2000])
def test_a_parameter_budget_sets_the_largest_widths_within_it(
    study, corpus, corpus_fields, parameters
):
    fields = study.fields.copy()
    del fields["model.width"]
    budget = dataclasses.replace(study, fields=fields, parameters=parameters)
    for point in resolve(budget, corpus, corpus_fields):
        # Counts have no width.
        if not point.baseline:
            fields = MODELS.dump(point.model)
            wider = MODELS.parse(fields | {"width": point.model.width + 1})
            assert count_parameters(point.model, corpus.task) <= parameters
            assert count_parameters(wider, corpus.task) > parameters


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "wild typ"}, "no point 'wild typ'; near: wild type"),
        ({"reference": "cut 99"}, "no point 'cut 99'"),
        ({"name": "../x"}, "study name '../x'"),
        ({"points": (Point("\udcff", "DLM46"),)}, "which is no text"),
        ({"name": "数" * 90}, "270 bytes"),
    ],
    ids=range(5),
)
def test_a_study_that_cannot_be_right_is_refused(study, tmp_path, run, changes, message):
    wrong = dataclasses.replace(study, **changes)
    code, _, err = run(wrong)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir()), "something started"


@pytest.mark.parametrize("reference", ["cut 4", SHOWN[1], "cut 2,7", "Kneser-Ney 5-gram"])
def test_the_reference_is_a_label_an_alias_a_cut_or_a_baseline(study, run, reference):
    changed = dataclasses.replace(study, reference=reference)
    code, _, err = run(changed, "--dry-run")
    assert code == 0, err


INVALID = rows("lab/sweep/cases.toml", "invalid")
# A table in TOML is UTF-8.
INVALID.append((["--out", "a\udcff"], "is not UTF-8, which Ray needs"))


DATA = ("60 lines (48 train", "split by a hash", "0 of 6 test lines", "search space: ")


@pytest.mark.parametrize(("options", "message"), INVALID, ids=range(len(INVALID)))
def test_invalid_input_gives_one_line_and_exit_code_2(study, run, options, message):
    before = [f"toy: {study.question}", "loading torch and the corpus, which takes seconds"]
    code, _, err = run(study, *options, "--dry-run")
    *lines, error = err.splitlines()
    assert code == 2
    assert error.startswith("error: ")
    assert message in error
    said = [line for line in lines if not line.startswith(DATA)]
    # Some mistakes are found before the corpus is loaded.
    assert said in ([], before)


def test_every_study_resolves_on_its_own_corpus(tmp_path, monkeypatch):
    """Its rows, fields and ranges exist, and its reference is one of its points.

    A short text stands in for the file of a corpus that is downloaded.
    """
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be: that is the question.\n" * 100)
    monkeypatch.setattr("lmzoo.data.download._download", lambda file, corpus: text)
    for path in SCRIPTS:
        studies = find_studies(str(path))
        for study in studies:
            assert_resolves(study)
        # A file of one study has its name.
        if len(studies) == 1:
            first_word = path.stem.partition("_")[0]
            assert studies[0].name.startswith(first_word)


def assert_resolves(study):
    fields = corpus_config(study, study.fields)
    labels = {""}
    for point in resolve(study, open_corpus(fields), fields):
        labels |= {point.label} | set(point.aliases)
    assert study.reference in labels, study.name
    assert {point.label for point in study.points} <= labels, study.name
