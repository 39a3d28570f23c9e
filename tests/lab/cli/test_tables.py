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
    # What rich takes for the width of the terminal.
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


def test_a_figure_is_as_wide_as_asked_and_prints_its_caption(toy, printed, tmp_path):
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    for name, start in STARTS.items():
        widths = []
        for width in ("3.3in", "7.1in"):
            file = tmp_path / width / name
            out = printed("figure", toy.path, "--out", file, "--width", width)
            content = file.read_bytes()
            assert out.startswith(f"{file}: ")
            assert content.startswith(start)
            # Variables of the style of a page, which a file does not have.
            assert b"var(--" not in content
            widths += map(float, re.findall(rb'^<svg[^>]* width="(\d+)', content))
        # In pixels, 96 to an inch; only an SVG has the text.
        assert widths in ([], [317, 682])


STARTS = {"forest.pdf": b"%PDF", "curves.svg": b"<svg", "tuning.png": b"\x89PNG"}
"""What a file of each kind begins with."""


def test_an_unknown_figure_is_refused(toy, refused, tmp_path):
    error = refused("figure", toy.path, "--out", tmp_path / "forests.pdf")
    assert "near: forest" in error


def test_rank_takes_another_reference(toy, printed):
    out = printed("rank", toy.path, "--reference", "gate")
    assert re.search(r"cut gate .* reference\n", out)
    assert "WARNING: this is not the reference" in out


def test_rank_takes_the_reference_of_the_study_under_its_shown_name(toy, printed):
    assert "WARNING" not in printed("rank", toy.path, "--reference", "cut full")


def test_an_unknown_reference_is_refused(toy, refused):
    assert "no point 'best'" in refused("rank", toy.path, "--reference", "best")


@pytest.mark.parametrize(("command", "out"), [("report", ()), ("report", THERE), ("figure", THERE)])
def test_an_output_in_a_bucket_is_refused_before_the_study_is_read(
    refused, tmp_path, monkeypatch, command, out
):
    def fail(path):
        pytest.fail(f"{path} was read")

    monkeypatch.chdir(tmp_path)
    for module in ("load", "report.page"):
        monkeypatch.setattr(f"lmzoo.lab.analysis.{module}.load_study", fail)
    error = refused(command, "s3://bucket/runs/toy", out)
    assert "error: s3://bucket/" in error
    assert "--out" in error
    assert not list(tmp_path.iterdir())


def test_report_is_written_into_the_study(toy, printed, no_charts):
    printed("report", toy.path)
    page = (toy.path / "report.html").read_text()
    assert page.startswith("<!doctype html>")


def test_the_report_of_a_bucket_is_written_elsewhere(
    toy, printed, tmp_path, monkeypatch, no_charts
):
    module = "lmzoo.lab.analysis.report.page"
    monkeypatch.setattr(f"{module}.load_study", lambda path: load_study(toy.path))
    file = tmp_path / "new" / "page.html"
    printed("report", "s3://bucket/runs/toy", "--out", file)
    page = file.read_text()
    assert "--out s3://bucket/runs\n" in page
    assert "lmzoo report s3://bucket/runs/toy --out report.html" in page
