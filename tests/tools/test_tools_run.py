"""Tools run on the records of the documentation; `tests/benchmarks/test_scripts.py` runs others."""

import contextlib
import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs/results/records"


@pytest.fixture
def run(monkeypatch, capfd):
    """Return a function that runs a tool as a user does, and returns what it prints."""

    def call(name: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *words])
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(ROOT / f"tools/{name}.py"), run_name="__main__")
        return "".join(capfd.readouterr())

    return call


def test_a_row_of_the_atlas_is_planned_again(run):
    printed = run("repeat", "ngrams-captions", "Kneser-Ney 1-gram", "--dry-run")
    assert "| yes | worse / worse |" in printed


def test_a_study_of_today_is_continued_and_an_older_one_is_not(run, tmp_path, monkeypatch):
    words = ["--data-dir", str(tmp_path), "--out", str(tmp_path), "--dry-run"]
    words += ["--studies", "initial_states-captions"]
    printed = run("reference", *words)
    assert "nothing left to do" in printed
    monkeypatch.setattr("lmzoo.lab.store.records.NUMERICS", 99)
    # Its sweep would be planned as that above.
    sweep = SimpleNamespace(wait=lambda seconds: 0)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: sweep)
    assert "initial_states-captions.parquet is of older numerics" in run("reference", *words)


def test_the_map_predicts_cuts_from_the_recorded_ones(run, tmp_path, monkeypatch):
    import map_table  # type: ignore[import-not-found]

    monkeypatch.chdir(tmp_path)
    records = Path("docs/results/records")
    records.mkdir(parents=True)
    for file in RECORDS.glob("gru_ablation-captions.*"):
        shutil.copy(file, records)
    file = RECORDS / "modern_hgrn2-captions.parquet"
    own = map_table.read(file, file.with_suffix(".ablations.ndjson.gz"))
    shutil.copytree(own.path, "runs/map/map-hgrn2-captions")
    shown = run("map", "table")
    assert "15 cuts by their two costs" in shown
    assert re.search(r"HGRN2 +captions +4", shown)
    assert "sha256" in run("map", "seal", "sealed.json")
    sealed = json.loads(Path("sealed.json").read_text())
    assert {cut["cell"] for cut in sealed["cuts"]} == {"hgrn2"}
