"""The command line of a study: its options, and one line for invalid input."""

import dataclasses
import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lmzoo import main
from lmzoo.contract import MODELS
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.cli.sweep import find_studies
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.trainables.parameter_budget import count_parameters
from lmzoo.trainables.resolve import corpus_config, resolve, select_labels
from tests.cases import rows

SCRIPTS = sorted(Path(__file__).parents[3].joinpath("sweeps").glob("[!_]*.py"))
STUDIES = {
    f"{path.stem}:{study.name}": (path, study)
    for path in SCRIPTS
    for study in find_studies(str(path))
}
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
        monkeypatch.setattr(sys, "argv", ["study", "--out", str(tmp_path), *options])
        with pytest.raises(SystemExit) as stop:
            main(study)
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return run_main


def test_a_dry_run_prints_the_pending_runs_and_trains_nothing(study, tmp_path, run):
    place = tmp_path / "a folder"
    code, out, _ = run(study, "--dry-run", "--max-concurrent", "2", "--out", str(place))
    assert (code, out.splitlines()[0]) == (0, study.question)
    assert f"lmzoo plan '{place}/" in out, "a command that can be copied: quoted, on one line"
    assert "wild type: 10 runs, at most 40 epochs" in out
    assert f"{SHOWN[2]} ≡ cut gate_bias (2) + write (7):" in " ".join(out.split())
    budget = ["--seeds", "7", "--samples", "5", "--epochs", "2", "--search-space", "recipe.lr=off"]
    code, out, _ = run(study, "--dry-run", "--json", "--max-concurrent", "3", *budget)
    result = json.loads(out)
    assert (code, result["slots"]) == (0, 3)
    assert [(p["runs"], p["epochs"]) for p in result["points"]] == [(10, 20)] + [(7, 14)] * 4
    assert not list(tmp_path.iterdir()), "a dry run wrote files"


def test_only_the_selected_points_are_pending(study, run):
    """Labels may contain commas, and an alias selects its point."""
    selections = {
        "": SHOWN,
        "wild type": SHOWN[:1],
        "cut state_to_candidate (4),wild type": SHOWN[:2],
        "cut 3,2,4,5, wild type": [SHOWN[0], SHOWN[2]],
        "cut 2,7,cut 2,7,wild type": [SHOWN[0], SHOWN[2]],
        "state_to_candidate,wild type": SHOWN[:2],
    }
    for selection, pending in selections.items():
        code, out, _ = run(study, "--dry-run", "--json", "--points", selection)
        labels = [point["point"] for point in json.loads(out)["points"]]
        assert (code, labels) == (0, [*pending, *BASELINE_LABELS]), selection


def test_a_selected_point_has_the_same_runs_and_study_json_lists_all_points(
    study, corpus, corpus_fields, tmp_path
):
    points, run_ids = resolve(study, corpus, corpus_fields), []
    for number, selection in enumerate(("", "cut 4")):
        with closing(StudyStore(tmp_path / str(number))) as store:
            needed = select_labels(study, corpus, selection)
            runs = Planner(study, points, store, needed).ready()
        trained = {"cut 4", *BASELINE_LABELS} if selection else {p.label for p in points}
        assert {run.label for run in runs} == trained
        content = read_json(tmp_path / str(number) / STUDY)
        labels = ["wild type", "cut 4", "cut 3,2,4,5", *BASELINE_LABELS]
        assert [point["label"] for point in content["points"]] == labels
        assert content["reference"] == content["points"][0]["id"]
        run_ids.append([run.id for run in runs if run.label == "cut 4"])
    assert run_ids[0] == run_ids[1] != []


def test_a_parameter_budget_sets_the_largest_widths_within_it(study, corpus, corpus_fields):
    fields = {path: value for path, value in study.fields.items() if path != "model.width"}
    for parameters in (1000, 2000):
        budget = dataclasses.replace(study, fields=fields, parameters=parameters)
        for point in resolve(budget, corpus, corpus_fields):
            if not point.baseline:
                assert count_parameters(point.model, corpus.task) <= parameters
                wider = {**MODELS.dump(point.model), "width": point.model.width + 1}
                assert count_parameters(MODELS.parse(wider), corpus.task) > parameters


def test_a_study_that_cannot_be_right_is_refused(study, tmp_path, run):
    for changes, message in [
        ({"reference": "wild typ"}, "no point 'wild typ'; near: wild type"),
        ({"reference": "cut 99"}, "no point 'cut 99'"),
        ({"name": "../x"}, "study name '../x'"),
        ({"points": (dataclasses.replace(study.points[0], label="\udcff"),)}, "which is no text"),
        ({"name": "数" * 90}, "270 bytes"),
    ]:
        code, _, err = run(dataclasses.replace(study, **changes))
        assert (code, message in err, "Traceback" in err) == (2, True, False), err
        assert not list(tmp_path.iterdir()), "something started"


def test_the_reference_is_a_label_an_alias_a_cut_or_a_baseline(study, run):
    for reference in ("cut 4", SHOWN[1], "cut 2,7", "Kneser-Ney 5-gram"):
        code, _, err = run(dataclasses.replace(study, reference=reference), "--dry-run")
        assert code == 0, err


INVALID = [
    *rows("lab/sweep/cases.toml", "invalid"),
    (["--out", "a\udcff"], "is not UTF-8, which Ray needs"),
]


def test_invalid_input_gives_one_line_and_exit_code_2(study, run):
    before = [f"toy: {study.question}", "loading torch and the corpus, which takes seconds"]
    data = ("60 lines (48 train", "split by a hash", "0 of 6 test lines", "search space: ")
    for options, message in INVALID:
        code, _, err = run(study, *options, "--dry-run")
        assert (code, message in err, "Traceback" in err) == (2, True, False), (options, err)
        *lines, error = err.splitlines()
        assert error.startswith("error: "), options
        assert [line for line in lines if not line.startswith(data)] in ([], before), options


def test_every_study_resolves_on_its_own_corpus(tmp_path, monkeypatch):
    """Its rows, fields and ranges exist, and its reference is one of its points.

    A short text stands in for the file of a corpus that is downloaded.
    """
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be: that is the question.\n" * 100)
    monkeypatch.setattr("lmzoo.data.download._download", lambda file, corpus: text)
    for name, (path, study) in STUDIES.items():
        several = sum(other == path for other, _ in STUDIES.values()) > 1
        assert several or study.name.startswith(path.stem.split("_")[0]), name
        fields = corpus_config(study, study.fields)
        points = resolve(study, open_corpus(fields), fields)
        labels = {label for p in points for label in (p.label, *p.aliases)}
        assert study.reference in ("", *labels), name
        assert {point.label for point in study.points} <= labels, name
