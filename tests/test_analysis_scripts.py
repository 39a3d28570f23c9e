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
GRU, SIZES = (str(RECORDS / f"{name}-captions.parquet") for name in ("gru_ablation", "scaling"))
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
    own, rows = script("rank").ranking(GRU), table(capsys, "rank", GRU)
    assert own["label"].to_list() == list(rows)
    for row in own.to_dicts():
        command = rows[row["label"]]
        assert row["mean"] == pytest.approx(command["loss"])
        assert row["verdict"] == command["verdict"]
        assert row["seeds"] == command["runs"] > 3
        assert row["difference"] == command["difference"]


def test_a_comparison_is_paired_by_seed(capsys):
    wide = GRU.replace("gru_ablation", "gru_ablation_64")  # all points have the same seeds
    compare, rows = script("compare"), table(capsys, "rank", wide)
    pairs = compare.pairs(wide, "cut carry (6)")
    assert pairs["difference"].mean() == pytest.approx(rows["cut carry (6)"]["difference"])
    other = compare.pairs(wide, "cut carry (6)", "cut write (7)")
    between = rows["cut carry (6)"]["loss"] - rows["cut write (7)"]["loss"]
    assert other["difference"].mean() == pytest.approx(between)


def test_the_median_and_the_quartiles_are_those_of_the_seeds(tmp_path):
    curves = script("curves")
    last = curves.losses(GRU).filter(pl.col("label") == "wild type", pl.col("epoch") == 10)
    losses = script("curves").lmzoo.runs(GRU).filter("reference", "chosen")["valid"].sort()
    assert last.row(0)[2:] == (losses[3], losses[6], losses[9], 13)
    curves.main(GRU, tmp_path / "curves.html")
    assert "vega" in (tmp_path / "curves.html").read_text()


def test_two_studies_are_paired_by_seed_where_the_data_are_the_same(tmp_path):
    paths = []
    for name, shift, seeds in (("first", 0.0, 3), ("second", 0.5, 3), ("third", 0.5, 1)):
        toy = ToyStudy(tmp_path / name)
        toy.add_point("full", [2.0 + shift, 2.1 + shift, 2.4 + 2 * shift][:seeds])
        toy.add_point(f"only {name}", [3.0, 3.1])
        paths.append(str(toy.write()))
    differences = script("two_studies").differences
    (row,) = differences(*paths[:2]).to_dicts()
    half = stats.ttest_1samp([0.5, 0.5, 1.0], 0).confidence_interval().high - 2 / 3
    assert (row["pairs"], row["difference"]) == (3, pytest.approx(2 / 3))
    assert row["half"] == pytest.approx(half)
    (row,) = differences(paths[0], paths[2]).to_dicts()
    assert (row["pairs"], row["half"]) == (1, None)


def test_effects_and_interactions_have_the_intervals_of_scipys_test(tmp_path):
    toy, random = ToyStudy(tmp_path / "toy"), np.random.default_rng(0)
    losses = 3 + random.normal(size=(4, 4))
    for own, cuts in zip(losses, ([], ["write"], ["carry"], ["write", "carry"]), strict=True):
        model = {"name": "m", "cell": {"name": "mgu", "cuts": cuts}}
        toy.add_point(" ".join(cuts) or "wild type", own.tolist(), model=model)
    rows = script("epistasis").effects(str(toy.write())).rows_by_key("cut", named=True, unique=True)
    wild, write, carry, both = losses
    seeds = {
        "write": (write - wild + both - carry) / 2,
        "carry": (carry - wild + both - write) / 2,
        "carry × write": both - carry - write + wild,
    }
    for cut, own in seeds.items():
        half = stats.ttest_1samp(own, 0).confidence_interval().high - own.mean()
        assert rows[cut]["effect"] == pytest.approx(own.mean())
        assert rows[cut]["half"] == pytest.approx(half)
    assert [rows[cut]["designs"] for cut in seeds] == [2, 2, 1]
    with pytest.raises(UserError, match="has no tested points with cuts"):
        script("epistasis").effects(SIZES)


def test_sizes_and_gains(capsys):
    own = script("scaling").sizes(SIZES).filter(pl.col("architecture") == "gru")
    rows = [row for name, row in table(capsys, "rank", SIZES).items() if name.startswith("gru E=")]
    rows.sort(key=lambda row: row["parameters"])
    assert own["loss"].to_list() == pytest.approx([row["loss"] for row in rows])
    assert own["gain"].to_list()[1] == pytest.approx(0.0743, abs=5e-5)
    assert own["gain"].to_list()[0] is None


def test_the_page_and_the_runs_are_written(tmp_path, monkeypatch):
    pages: list[tuple] = []
    monkeypatch.setattr(
        "lmzoo.lab.analysis.report.render_report", lambda *own, **_: pages.append(own) or "page"
    )
    script("report").main(GRU, tmp_path / "gru.html")
    assert (pages, (tmp_path / "gru.html").read_text()) == ([(GRU,)], "page")
    runs = pl.read_csv(tmp_path / "gru.csv", infer_schema_length=None)
    assert runs.height == 133
    assert "recipe.lr" in runs.columns


def test_every_script_is_short_and_fails_in_one_line(capsys, monkeypatch):
    assert {"compare", "curves", "epistasis", "rank", "report"} <= set(SCRIPTS)
    for name in SCRIPTS:
        lines = (ROOT / "analysis" / f"{name}.py").read_text().splitlines()
        assert 15 <= len(lines) <= 52, name
        monkeypatch.setattr(
            "sys.argv", [name, "nowhere", *(["a"] if name in ("compare", "two_studies") else [])]
        )
        with pytest.raises(SystemExit) as stop:
            run_command(script(name).main)
        assert (stop.value.code, capsys.readouterr().err.count("\n")) == (2, 1), name


def test_a_script_prints_a_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rank.py", GRU])
    with pytest.raises(SystemExit) as stop:
        run_command(script("rank").main)
    printed = capsys.readouterr().out
    assert (stop.value.code, printed.count("negligible")) == (0, 7)
    assert "cut gate_bias (2) + input_to_candidate (3) + state_to_candidate (4)" in printed
