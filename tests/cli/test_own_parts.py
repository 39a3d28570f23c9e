"""Subcommands with parts of the user: --plugin, and runs that are opened from another folder."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from lmzoo import zoo
from lmzoo.base.own_parts import import_source
from lmzoo.base.registry import PARTS
from lmzoo.cells.base import CELLS
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.store.opened import digest, noted
from lmzoo.lab.store.records import RunFolder
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run, run_config
from tests.own_part_files import own_parts as own_parts

SIZES = ("--set", "model.width=4", "--set", "model.cell=own_mingru", "--set", "corpus.length=8")


@pytest.fixture
def trained(own_parts: Path, lmzoo, tmp_path: Path) -> Path:
    corpus = f"text:{own_parts / 'sentences.txt'}"
    options = ("--plugin", own_parts / "own_mingru.py", "--corpus", corpus, "--epochs", 1)
    code, _, err = lmzoo("train", "recurrent_lm", options, SIZES, "--out", tmp_path / "runs")
    assert code == 0, err
    return next(path.parent for path in (tmp_path / "runs").glob("*/config.json"))


def forget():
    """Behave like another process, which has not imported the cell."""
    del PARTS[CELLS._parts.pop("own_mingru").Config]
    for name in ("own_mingru", "own_gate"):
        del sys.modules[name]


def test_a_run_of_an_own_cell_needs_no_file(trained, own_parts, lmzoo, tmp_path, monkeypatch):
    _, before, _ = lmzoo("sample", trained, "--count", 2)
    forget()
    text = own_parts / "sentences.txt"
    kept = text.read_text()
    # Also the text: it is written again below.
    shutil.rmtree(own_parts)
    own_parts.mkdir()
    text.write_text(kept)
    monkeypatch.chdir(tmp_path)
    code, after, err = lmzoo("sample", trained, "--count", 2)
    assert code == 0
    assert after == before
    assert "error" not in err


def test_code_of_another_account_needs_trust(trained, lmzoo, refused, tmp_path, monkeypatch):
    forget()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another account"))
    assert "repeat the command with --trust" in refused("sample", trained, "--count", 2)
    assert "own_mingru" not in sys.modules
    code, out, _ = lmzoo("sample", trained, "--count", 2, "--trust")
    assert code == 0
    assert out.count("\n") == 2


def test_a_file_of_several_studies_runs_the_one_that_is_named(own_parts, lmzoo, monkeypatch):
    monkeypatch.chdir(own_parts)
    text = Path("own_study.py").read_text()
    Path("two_studies.py").write_text(
        text.partition("if __name__")[0]
        + "import dataclasses\n\nSTUDIES = STUDY, dataclasses.replace(STUDY, name='second')\n"
        + "del STUDY\n"
    )
    code, out, err = lmzoo("sweep", "two_studies.py", "second", "--dry-run")
    assert code == 0
    assert "40 lines" in err
    assert "also stand in training" in err
    assert re.search(r"minGRU: \d runs", out)
    assert re.search(r"in runs/second-text-sentences-\w{6}\b", " ".join(out.split()))
    code, out, err = lmzoo("sweep", "two_studies.py", "third", "--dry-run")
    assert code == 2
    assert err.count("\n") == 1
    assert "'third'" in err


def test_a_row_records_what_its_cell_names_and_opens(own_parts, tmp_path):
    rate = own_parts / "rate.txt"
    cell = own_parts / "own_mingru.py"
    rate.write_text("1")
    os.utime(rate, (0, 0))  # older than this process: what is younger is a program's own output
    reads = (
        f"\nfrom pathlib import Path\nRATE = Path({str(rate)!r}).read_text()\nNAME = 'OWN_LEVEL'\n"
    )
    cell.write_text(cell.read_text() + reads)
    with noted():
        import_source(cell)
    spec = {"name": "text", "path": str(own_parts / "sentences.txt"), "length": 8}
    corpus = open_corpus(spec)
    model = zoo.config("recurrent_lm", cell="own_mingru", width=4, emission="vector")
    config = run_config(model, Recipe(), corpus, spec, seed=0)
    run = Run(RunFolder(tmp_path / "run"), config, corpus)
    next(run.train(1))
    run.end("finished")
    run.close()
    found = {record["event"]: record for record in run.folder.records()}
    assert found["files"]["files"][str(rate)] == digest(rate)
    assert "OWN_LEVEL" in found["end"]["environment"]["variables"]
