"""The subcommands that read a study: their output, their errors, what they import."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.lab.analysis.load import load_study
from tests.cases import cases

ROOT = Path(__file__).parents[3]


@pytest.fixture
def toy(toy):
    toy.add_points(
        """
        full: 3.0  3.1
        gate: 3.2  3.4
        """
    )
    return toy


def test_rank_prints_a_table_as_wide_as_the_terminal(toy, lmzoo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    options = ("--unit", "sentence")
    code, out, err = lmzoo("rank", toy.path, options, "--explain")
    assert code == 0
    assert err == ""
    what = "sentence loss in nats per token, test at epoch 3"
    assert what in out
    assert "1.525 ±" in out
    assert what in lmzoo("rank", toy.path, options)[1]
    assert 100 < max(map(len, out.splitlines())) <= 140


def test_json_is_printed_by_its_flag(toy, lmzoo):
    code, out, _ = lmzoo("rank", toy.path, "--json")
    assert code == 0
    assert json.loads(out)["warnings"]


THERE = ("--out", "s3://bucket/there")


@cases("lab/cli/cases.toml", "wrong_options", "command, options, message")
def test_a_wrong_option_is_one_line_and_code_2(toy, refused, command, options, message):
    assert message in refused(command, toy.path, options)


@pytest.mark.parametrize("command", ["rank", "figure", "report"])
def test_a_folder_that_is_not_there_is_one_line(refused, tmp_path, command):
    assert "no folder" in refused(command, tmp_path / "nowhere")


@pytest.mark.parametrize("command", ["rank", "judge"])
def test_tables_import_neither_torch_nor_ray(toy, command):
    calls = {
        "rank": f"from lmzoo.lab.cli.tables import rank; rank(pathlib.Path({str(toy.path)!r}))",
        "judge": "lmzoo.judge('docs/assets/judge/results.csv', by='variant', metric='loss')",
    }
    found = "sorted({'torch', 'ray', 'optuna', 'altair', 'boto3'} & set(sys.modules))"
    code = f"import pathlib, sys, lmzoo\n{calls[command]}\nprint({found})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_figure_is_as_wide_as_asked_and_prints_its_caption(toy, lmzoo, refused, tmp_path):
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    starts = {"forest.pdf": b"%PDF", "curves.svg": b"<svg", "tuning.png": b"\x89PNG"}
    for name, start in starts.items():
        widths = []
        for width in ("3.3in", "7.1in"):
            file = tmp_path / width / name
            code, out, _ = lmzoo("figure", toy.path, "--out", file, "--width", width)
            assert code == 0
            assert out.startswith(f"{file}: ")
            assert file.read_bytes().startswith(start)
            widths += map(float, re.findall(rb'^<svg[^>]* width="(\d+)', file.read_bytes()))
            assert b"var(--" not in file.read_bytes()
        assert widths in ([], [317, 682])
    assert "near: forest" in refused("figure", toy.path, "--out", tmp_path / "forests.pdf")


def test_rank_takes_another_reference(toy, lmzoo, refused):
    out = lmzoo("rank", toy.path, "--reference", "gate")[1]
    assert re.search(r"cut gate .* reference\n", out)
    assert "WARNING: this is not the reference" in out
    assert "WARNING" not in lmzoo("rank", toy.path, "--reference", "cut full")[1]
    assert "no point 'best'" in refused("rank", toy.path, "--reference", "best")


def test_an_output_in_a_bucket_is_refused_before_the_study_is_read(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in ("load", "report.page"):
        fail = lambda path: pytest.fail(f"{path} was read")  # noqa: E731
        monkeypatch.setattr(f"lmzoo.lab.analysis.{module}.load_study", fail)
    for command, out in (("report", ()), ("report", THERE), ("figure", THERE)):
        error = refused(command, "s3://bucket/runs/toy", out)
        assert "error: s3://bucket/" in error
        assert "--out" in error
    assert not [*tmp_path.iterdir()]


def test_report_is_written_into_the_study_and_for_a_bucket_elsewhere(
    toy, lmzoo, tmp_path, monkeypatch, no_charts
):
    assert lmzoo("report", toy.path)[0] == 0
    assert (toy.path / "report.html").read_text().startswith("<!doctype html>")
    module = "lmzoo.lab.analysis.report.page"
    monkeypatch.setattr(f"{module}.load_study", lambda path: load_study(toy.path))
    page = tmp_path / "new" / "page.html"
    assert lmzoo("report", "s3://bucket/runs/toy", "--out", page)[0] == 0
    assert "--out s3://bucket/runs\n" in page.read_text()
    assert "lmzoo report s3://bucket/runs/toy --out report.html" in page.read_text()
