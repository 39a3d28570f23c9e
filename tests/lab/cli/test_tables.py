"""The subcommands that read a study: their output, their errors, what they import."""

import csv
import io
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.data.corpus import open_corpus
from lmzoo.lab.analysis.load import load_study
from tests.lab.analysis.toy_study import ToyStudy

ROOT = Path(__file__).parents[3]
COMMANDS = (
    "rank",
    "compare",
    "curves",
    "epistasis",
    "report",
)


@pytest.fixture
def toy(tmp_path):
    toy = ToyStudy(tmp_path / "toy")
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


def test_sizes_of_old_records_are_measured_with_a_data_dir(toy, lmzoo, refused, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line number{i:02}\n" for i in range(20)))
    spec = {"name": "text", "path": str(path)}
    corpus = open_corpus(spec)
    toy.add_point("text", [3.0, 3.1], corpus=spec, fingerprint=corpus.fingerprint)
    toy.study_json["points"] = toy.study_json["points"][-1:]
    toy.write()
    for run in toy.path.glob("[fg]*"):
        shutil.rmtree(run)
    assert "--data-dir" in refused("rank", toy.path, "--unit", "bpc")
    code, out, _ = lmzoo(
        "rank", toy.path, "--unit", "bpc", "--data-dir", tmp_path, "--format", "csv"
    )
    # A line has 14 characters with its newline, and 3 scored tokens.
    lines = len(corpus.test.tokens)
    assert (corpus.test.num_scored, corpus.test_size.characters) == (3 * lines, 14 * lines)
    loss = float(next(csv.DictReader(io.StringIO(out)))["loss"])
    assert (code, loss) == (0, pytest.approx(3.05 * 3 / math.log(2) / 14))
    path.write_text("".join(f"other number{i}\n" for i in range(20)))
    error = refused("rank", toy.path, "--unit", "bpc", "--data-dir", tmp_path)
    assert "is not the one of the runs" in error


def test_a_wrong_option_is_one_line_and_exit_code_2(toy, refused, tmp_path):
    for command in COMMANDS:
        assert "no folder" in refused(command, tmp_path / "nowhere")
    # An unknown format is refused before the study is read.
    error = refused("rank", tmp_path / "nowhere", "--format", "html")
    assert "no format 'html'; known: table, md, csv, json, latex" in error
    for command, options, message in (
        ("rank", ("--at", 99), "at epoch 99"),
        ("curves", ("--format", "gif"), "no format 'gif'"),
        ("report", ("--metric", "words"), "no metric 'words'"),
    ):
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
    for format, start in (("png", b"\x89PNG"), ("html", b"<!DOCTYPE html>")):
        code, out, _ = lmzoo("curves", toy.path, "--out", tmp_path / format, "--format", format)
        files = sorted((tmp_path / format).iterdir())
        assert (code, [file.stem for file in files]) == (0, ["learning", "setting-lr"])
        assert sorted(out.split()) == [str(file) for file in files]
        for data in (file.read_bytes() for file in files):
            assert data.lstrip().startswith(start)
            assert b"<script src=" not in data


def test_report_writes_the_page_into_the_studys_folder(toy, lmzoo):
    assert lmzoo("report", toy.path)[0] == 0
    assert (toy.path / "report.html").read_text().startswith("<!doctype html>")


def test_an_output_in_a_bucket_is_refused_before_the_study_is_read(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in ("records.load", "report.page"):
        fail = lambda path: pytest.fail(f"{path} was read")  # noqa: E731
        monkeypatch.setattr(f"lmzoo.lab.analysis.{module}.load_study", fail)
    for command in ("report", "curves"):
        for out in ((), ("--out", "s3://bucket/there")):
            error = refused(command, "s3://bucket/runs/toy", *out)
            assert "error: s3://bucket/" in error
            assert "--out" in error
    assert not [*tmp_path.iterdir()]


def test_report_of_a_study_in_a_bucket_is_written_to_another_folder(
    toy, lmzoo, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "lmzoo.lab.analysis.report.page.load_study", lambda path: load_study(toy.path)
    )
    page = tmp_path / "new" / "page.html"
    assert lmzoo("report", "s3://bucket/runs/toy", "--out", page)[0] == 0
    assert "--storage s3://bucket/runs\n" in page.read_text()
    assert "lmzoo report s3://bucket/runs/toy --out report.html" in page.read_text()
