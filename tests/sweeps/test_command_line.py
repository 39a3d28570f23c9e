"""Every study's command line: a dry run, and one clear line for what is wrong."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from sweeps.engine import main

STUDIES = sorted(Path(__file__).parents[2].joinpath("sweeps").glob("[!_]*.py"))


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
    assert not list(tmp_path.glob("*/*/records.ndjson"))


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
    assert [(p["runs"], p["epochs"]) for p in told["points"]] == [(7, 14)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
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
    from sweeps.engine.resolve import corpus_config, resolve

    study = runpy.run_path(str(path))["STUDY"]
    assert study.name == path.stem
    fields = corpus_config(study, study.fields)
    points = resolve(study, open_corpus(fields), fields)
    labels = {label for p in points for label in (p.label, *p.aliases)}
    assert study.reference in ("", *labels)
    assert len(labels) == len(study.points)
