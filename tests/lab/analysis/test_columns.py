"""The columns of all tables: described once; every unit converts all numbers in nats."""

import json
import tomllib
from html import unescape
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import lmzoo
from lmzoo.lab.analysis.columns import FRAMES, NATS, Column, in_unit
from lmzoo.lab.analysis.formatting import format_mean, format_p
from lmzoo.lab.analysis.ranking import FIVE_GRAM
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import FORMATS, render
from lmzoo.lab.analysis.report.page import render_report
from tests.lab.analysis.test_formatting import add_sizes
from tests.lab.analysis.toy_study import ToyStudy, rank

IN_BITS = {"bits_per_character", "bits_per_byte"}
HALF = Column(
    "planted_half", NATS, "half of it", ".4f", ("results",),
    value=pl.col("high") - pl.col("loss"), legend="half of the loss's interval",
)  # fmt: skip
"""A column that a contributor adds in one entry."""


def add_points(toy: ToyStudy, scale: float = 1.0) -> ToyStudy:
    """Add three cuts and a 5-gram; all losses, spreads and the margin are proportional to scale."""
    random, floor = np.random.default_rng(0), {"token": 1.5 * scale, "sentence": scale}
    for shift, (name, cuts) in enumerate({"full": (), "gate": ["a"], "carry": ["b"]}.items()):
        losses = scale * (3 + 0.3 * shift + 0.05 * random.normal(size=4))
        model = {"name": "m", "cell": {"name": "c", "cuts": cuts}}
        toy.add_point(name, losses.tolist(), floor=floor, model=model)
        toy.study_json["chosen"][name]["tuning_sd"] = 0.01 * scale
    toy.add_point("count", [4.0 * scale] * 4, model=FIVE_GRAM, floor=floor)
    toy.study_json["margin"] = 0.02 * scale
    return add_sizes(toy)


def misdeclared(path) -> set[str]:
    """Return the columns that double when all losses double but are not in nats, or the reverse."""
    once = rank(add_points(ToyStudy(path / "once"), 1.0))
    twice = rank(add_points(ToyStudy(path / "twice"), 2.0))
    in_nats = {n for c in FRAMES["ranking"] if c.unit for n in (c.name, *c.ends)}
    wrong = set()
    for column in once.select(pl.selectors.float()):
        name = column.name
        a = column.drop_nulls().to_numpy()
        b = twice[name].drop_nulls().to_numpy()
        doubles = np.allclose(b, 2 * a, rtol=1e-6, atol=0)
        if a.any() and doubles != (name in in_nats | IN_BITS):
            wrong.add(name)
    return wrong


@pytest.fixture
def half_column(monkeypatch):
    monkeypatch.setitem(FRAMES, "ranking", (*FRAMES["ranking"], HALF))


def test_the_columns_in_nats_are_those_that_double_with_the_losses(tmp_path):
    assert misdeclared(tmp_path) == set()


PER_NAT = {"bpc": 1 / np.log(2) / 2, "bpb": 1 / np.log(2) / 4}


@pytest.mark.parametrize("unit", PER_NAT)
def test_every_unit_converts_every_column_in_nats_and_no_other(toy, unit, half_column):
    table = rank(add_points(toy))
    converted = in_unit(table, unit)
    for column in FRAMES["ranking"]:
        for name in {column.name, *column.ends} - {"metric"}:
            if column.unit:
                expected = PER_NAT[unit] * table[name].to_numpy()
                assert np.allclose(converted[name].to_numpy(), expected, equal_nan=True), name
            else:
                assert converted[name].equals(table[name]), name


def test_programs_find_the_columns_by_their_names(toy):
    """A renamed column breaks them, so each name is written a second time."""
    names = tomllib.loads(Path(__file__).with_name("csv_columns.toml").read_text())
    results = pl.DataFrame({"variant": ["a", "b"] * 2, "seed": [1, 1, 2, 2], "loss": [1, 2, 1, 3]})
    reports = {
        "ranking": study_ranking(add_points(toy).write()),
        "judged": lmzoo.judge(results, by="variant", metric="loss").report,
    }
    for kind, report in reports.items():
        header = render(report, "csv").partition("\n")[0].split(",")
        assert [name for name in header if name != "warnings"] == names[kind].split()
        (row, *_) = json.loads(render(report, "json"))["rows"]
        assert row.keys() == set(names[kind].split()) - {"made_by"}


def test_a_column_is_added_in_one_place(toy, half_column, no_charts):
    report = study_ranking(add_points(toy).path)
    value = report.frame["planted_half"].drop_nulls().to_list()[0]
    shown = f"{value:.4f}"
    assert report.tables[0].header[-1] == HALF.heading
    for format in ("table", *FORMATS):
        text = render(report, format, width=200)
        assert (str(value) if format in ("csv", "json") else shown) in text
        assert format == "csv" or "half of it: half of the loss's interval" in text
    page = unescape(render_report(toy.path))
    assert all(said in page for said in ("half of the loss's interval", f">{shown}</td>"))
    bits = study_ranking(toy.path, unit="bpc").frame["planted_half"].drop_nulls()[0]
    assert bits == pytest.approx(value / np.log(2) / 2)


def test_no_rounded_number_contradicts_a_word():
    assert [format_p(p) for p in (0.0496, 0.0504, 0.0506)] == ["0.04960", "0.05040", "0.051"]
    assert format_mean(-0.0004, -0.0024, 0.0016, "+.3f") == "0.000 ±0.002"
