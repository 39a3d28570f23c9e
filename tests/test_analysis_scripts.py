"""The scripts in `analysis/`: a number of each is that of the command's table."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from tests.cli.run_lmzoo import run_lmzoo
from tests.lab.analysis.toy_study import ToyStudy

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs/results/records"
GRU = str(RECORDS / "gru_ablation-captions.parquet")
EQUAL = str(RECORDS / "ngrams-captions.parquet")
"""A study in which all points have the same seeds."""
SIZES = str(RECORDS / "scaling-captions.parquet")
SCRIPTS = sorted(path.stem for path in (ROOT / "analysis").glob("*.py"))


def script(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "analysis" / f"{name}.py")))


def table(capsys, *words: str) -> dict[str, dict]:
    """Return the rows of a command's table by their labels."""
    capsys.readouterr()
    assert run_lmzoo(*words, "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    return {row["label"]: row for row in rows}


def test_the_ranking_has_the_means_and_differences_of_the_command(capsys):
    own = script("rank").ranking(GRU)
    rows = table(capsys, "rank", GRU)
    assert own["label"].to_list() == list(rows)
    for row in own.to_dicts():
        command = rows[row["label"]]
        assert row["mean"] == pytest.approx(command["loss"])
        assert row["verdict"] == command["verdict"]
        assert row["seeds"] == command["runs"] > 3
        assert row["difference"] == command["difference"]


def test_a_comparison_is_paired_by_seed(capsys):
    rows = table(capsys, "rank", EQUAL)
    pairs = script("compare").pairs(EQUAL, "log-bilinear 5-gram")
    expected = rows["log-bilinear 5-gram"]["difference"]
    assert pairs["difference"].mean() == pytest.approx(expected)


def test_two_points_are_compared_without_the_reference(capsys):
    rows = table(capsys, "rank", EQUAL)
    pairs = script("compare").pairs(EQUAL, "log-bilinear 5-gram", "log-bilinear 3-gram")
    expected = rows["log-bilinear 5-gram"]["loss"] - rows["log-bilinear 3-gram"]["loss"]
    assert pairs["difference"].mean() == pytest.approx(expected)


def test_the_median_and_the_quartiles_are_those_of_the_seeds():
    curves = script("curves")
    last = curves.losses(GRU).filter(pl.col("label") == "wild type", pl.col("epoch") == 10)
    runs = curves.lmzoo.runs(GRU).filter("reference", "chosen")
    losses = runs["valid"].sort()
    _, _, *found = last.row(0)
    # Of 13 seeds, three are below each quartile and the median.
    assert found == [losses[3], losses[6], losses[9], 13]


def test_the_curves_are_a_page(tmp_path):
    page = tmp_path / "curves.html"
    script("curves").main(GRU, page)
    assert "vega" in page.read_text()


def half_width(values) -> float:
    """Return half of the interval of scipy's test."""
    interval = stats.ttest_1samp(values, 0).confidence_interval()
    return interval.high - np.mean(values)


@pytest.fixture
def study(tmp_path):
    """Return a function that writes a study with a point that all have, and one of its own."""

    def write(name: str, losses: list[float]) -> str:
        toy = ToyStudy(tmp_path / name)
        toy.add_point("full", losses)
        toy.add_point(f"only {name}", [3.0, 3.1])
        return str(toy.write())

    return write


def test_two_studies_are_paired_by_seed_where_the_data_are_the_same(study):
    first = study("first", [2.0, 2.1, 2.4])
    second = study("second", [2.5, 2.6, 3.4])
    [row] = script("two_studies").differences(first, second).to_dicts()
    assert row["pairs"] == 3
    assert row["difference"] == pytest.approx(2 / 3)
    assert row["half"] == pytest.approx(half_width([0.5, 0.5, 1.0]))


def test_one_pair_of_two_studies_has_no_interval(study):
    first = study("first", [2.0, 2.1, 2.4])
    third = study("third", [2.5])
    [row] = script("two_studies").differences(first, third).to_dicts()
    assert row["pairs"] == 1
    # One difference has no spread.
    assert row["half"] is None


def test_effects_and_interactions_have_the_intervals_of_scipys_test(tmp_path):
    toy = ToyStudy(tmp_path / "toy")
    # Four points on four seeds.
    losses = 3 + np.random.default_rng(0).normal(size=(4, 4))
    wild, write, carry, both = losses
    designs = {"wild type": [], "write": ["write"], "carry": ["carry"], "both": ["write", "carry"]}
    for values, (label, cuts) in zip(losses, designs.items(), strict=True):
        model = {"name": "m", "cell": {"name": "mgu", "cuts": cuts}}
        toy.add_point(label, values.tolist(), model=model)
    frame = script("epistasis").effects(str(toy.write()))
    rows = frame.rows_by_key("cut", named=True, unique=True)
    by_seed = {
        "write": (write - wild + both - carry) / 2,
        "carry": (carry - wild + both - write) / 2,
        "carry × write": both - carry - write + wild,
    }
    for cut, effects in by_seed.items():
        assert rows[cut]["effect"] == pytest.approx(effects.mean())
        assert rows[cut]["half"] == pytest.approx(half_width(effects))
    assert [rows[cut]["designs"] for cut in by_seed] == [2, 2, 1]


def test_a_study_without_cuts_has_no_effects():
    with pytest.raises(UserError, match="has no tested points with cuts"):
        script("epistasis").effects(SIZES)


def test_sizes_and_gains(capsys):
    found = script("scaling").sizes(SIZES).filter(pl.col("architecture") == "gru")
    ranked = table(capsys, "rank", SIZES)
    rows = [row for label, row in ranked.items() if label.startswith("gru E=")]
    rows.sort(key=lambda row: row["parameters"])
    losses = [row["loss"] for row in rows]
    assert found["loss"].to_list() == pytest.approx(losses)
    smallest, second, *_ = found["gain"]
    assert smallest is None
    assert second == pytest.approx(0.0665, abs=5e-5)


def test_the_page_and_the_runs_are_written(tmp_path, monkeypatch):
    pages: list[tuple] = []

    def render(*arguments, **_):
        pages.append(arguments)
        return "page"

    monkeypatch.setattr("lmzoo.lab.analysis.report.render_report", render)
    script("report").main(GRU, tmp_path / "gru.html")
    assert pages == [(GRU,)]
    assert (tmp_path / "gru.html").read_text() == "page"
    runs = pl.read_csv(tmp_path / "gru.csv", infer_schema_length=None)
    assert runs.height == 133
    assert "recipe.lr" in runs.columns


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_short(name):
    lines = (ROOT / "analysis" / f"{name}.py").read_text().splitlines()
    assert 15 <= len(lines) <= 52


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_fails_in_one_line(name, capsys, monkeypatch):
    command = [name, "nowhere"]
    if name in ("compare", "two_studies"):
        command.append("a")
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as stop:
        run_command(script(name).main)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_script_prints_a_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rank.py", GRU])
    with pytest.raises(SystemExit) as stop:
        run_command(script("rank").main)
    printed = capsys.readouterr().out
    assert stop.value.code == 0
    assert printed.count("negligible") == 7
    assert "cut gate_bias (2) + input_to_candidate (3) + state_to_candidate (4)" in printed
