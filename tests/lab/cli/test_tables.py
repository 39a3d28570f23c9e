"""The subcommands that read a study: their output, their errors, what they import."""

import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.lab.analysis.load import load_study

ROOT = Path(__file__).parents[3]


@pytest.fixture
def toy(toy):
    toy.add_point("full", [3.0, 3.1])
    toy.add_point("gate", [3.2, 3.4])
    return toy


def test_rank_prints_a_table_as_wide_as_the_terminal(toy, lmzoo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    options = ("--metric", "sentence", "--at", 2)
    code, out, err = lmzoo("rank", toy.path, *options, "--explain")
    assert (code, err) == (0, "")
    what = "sentence loss in nats per token, validation at epoch 2"
    assert what in out
    assert "1.575 ±" in out
    assert what in lmzoo("rank", toy.path, *options)[1]
    assert 100 < max(map(len, out.splitlines())) <= 140


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("rank", ("--at", 99), "at epoch 99"),
        ("rank", ("--format", "html"), "no format 'html'; known: table, md, csv, json, latex"),
        ("rank", ("--unit", "bpc"), "lack the size of the test text"),
        ("compare", ("--reference", "cut best"), "no point 'cut best'; known: cut full"),
        ("epistasis", (), "has no two mutants of a cell"),
        ("curves", ("--format", "gif"), "no format 'gif'"),
        ("report", ("--metric", "words"), "no metric 'words'"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    toy, refused, tmp_path, command, options, message
):
    assert "no folder" in refused(command, tmp_path / "nowhere")
    assert message in refused(command, toy.path, *options)


def test_rank_imports_neither_torch_nor_ray(toy):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from lmzoo.lab.cli.tables import rank\n"
        f"rank(Path({str(toy.path)!r}))\n"
        "print(sorted({'torch', 'ray', 'optuna', 'altair', 'boto3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[]"


def test_curves_writes_one_file_per_chart(toy, lmzoo, tmp_path):
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    for format, start in (("svg", b"<svg"), ("html", b"<!DOCTYPE html>")):
        code, out, _ = lmzoo("curves", toy.path, "--out", tmp_path / format, "--format", format)
        files = sorted((tmp_path / format).iterdir())
        assert (code, [file.stem for file in files]) == (0, ["learning", "setting-lr"])
        assert sorted(out.split()) == [str(file) for file in files]
        for data in (file.read_bytes() for file in files):
            assert data.lstrip().startswith(start)
            assert b"<script src=" not in data


def test_an_output_in_a_bucket_is_refused_before_the_study_is_read(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in ("load", "report.page"):
        fail = lambda path: pytest.fail(f"{path} was read")  # noqa: E731
        monkeypatch.setattr(f"lmzoo.lab.analysis.{module}.load_study", fail)
    for command in ("report", "curves"):
        for out in ((), ("--out", "s3://bucket/there")):
            error = refused(command, "s3://bucket/runs/toy", *out)
            assert "error: s3://bucket/" in error
            assert "--out" in error
    assert not [*tmp_path.iterdir()]


def test_report_is_written_into_the_study_and_for_a_bucket_elsewhere(
    toy, lmzoo, tmp_path, monkeypatch, no_charts
):
    assert lmzoo("report", toy.path)[0] == 0
    assert (toy.path / "report.html").read_text().startswith("<!doctype html>")
    monkeypatch.setattr(
        "lmzoo.lab.analysis.report.page.load_study", lambda path: load_study(toy.path)
    )
    page = tmp_path / "new" / "page.html"
    assert lmzoo("report", "s3://bucket/runs/toy", "--out", page)[0] == 0
    assert "--storage s3://bucket/runs\n" in page.read_text()
    assert "lmzoo report s3://bucket/runs/toy --out report.html" in page.read_text()
