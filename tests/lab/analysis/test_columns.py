"""The columns of all tables: described once; every unit converts all numbers in nats."""

import json
from html import unescape

import numpy as np
import polars as pl
import pytest

import lmzoo
from lmzoo.lab.analysis.columns import FRAMES, NATS, VALUES, Column, in_unit
from lmzoo.lab.analysis.formatting import format_mean, format_p
from lmzoo.lab.analysis.ranking import FIVE_GRAM
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import FORMATS, render
from lmzoo.lab.analysis.report.page import render_report
from tests.cases import rows
from tests.lab.analysis.test_formatting import add_sizes
from tests.lab.analysis.toy_study import ToyStudy, rank

HALF = Column(
    "planted_half", NATS, "half of it", ".4f", ("results",),
    legend="half of the loss's interval",
)  # fmt: skip
"""A column that a contributor adds in one entry."""


def add_points(toy: ToyStudy, scale: float = 1.0) -> ToyStudy:
    """Add three cuts and a 5-gram; all losses, spreads and the margin are proportional to scale."""
    rng = np.random.default_rng(0)
    floor = {"token": 1.5 * scale, "sentence": scale}
    cuts = {"full": [], "gate": ["a"], "carry": ["b"]}
    for number, name in enumerate(cuts):
        mean = 3 + 0.3 * number
        noise = 0.05 * rng.normal(size=4)
        losses = scale * (mean + noise)
        cell = {"name": "c", "cuts": cuts[name]}
        model = {"name": "m", "cell": cell}
        toy.add_point(name, losses.tolist(), floor=floor, model=model)
        chosen = toy.study_json["chosen"][name]
        chosen["tuning_sd"] = 0.01 * scale
    # A model of counts depends on no seed.
    of_counts = [4.0 * scale] * 4
    toy.add_point("count", of_counts, model=FIVE_GRAM, floor=floor)
    toy.study_json["margin"] = 0.02 * scale
    return add_sizes(toy)


def misdeclared(path) -> set[str]:
    """Return the columns that double when all losses double but are not in nats, or the reverse."""
    once = rank(add_points(ToyStudy(path / "once"), 1.0))
    twice = rank(add_points(ToyStudy(path / "twice"), 2.0))
    in_nats = {"bits_per_character", "bits_per_byte"}
    for column in FRAMES["ranking"]:
        if column.unit:
            in_nats.update([column.name, *column.ends])
    wrong = set()
    for column in once.select(pl.selectors.float()):
        values = column.drop_nulls().to_numpy()
        doubled = twice[column.name].drop_nulls().to_numpy()
        doubles = np.allclose(doubled, 2 * values, rtol=1e-6, atol=0)
        if values.any() and doubles != (column.name in in_nats):
            wrong.add(column.name)
    return wrong


@pytest.fixture
def half_column(monkeypatch):
    columns = list(FRAMES["ranking"]) + [HALF]
    monkeypatch.setitem(FRAMES, "ranking", columns)
    value = pl.col("high") - pl.col("loss")
    monkeypatch.setitem(VALUES, HALF.name, value)


def test_the_columns_in_nats_are_those_that_double_with_the_losses(tmp_path):
    assert misdeclared(tmp_path) == set()


BITS = 1 / np.log(2)
# A token has two characters and four bytes.
PER_NAT = {"bpc": BITS / 2, "bpb": BITS / 4}


@pytest.mark.parametrize("unit", PER_NAT)
def test_every_unit_converts_every_column_in_nats_and_no_other(toy, unit, half_column):
    table = rank(add_points(toy))
    converted = in_unit(table, unit)
    for column in FRAMES["ranking"]:
        for name in {column.name, *column.ends} - {"metric"}:
            found = converted[name]
            if column.unit:
                expected = PER_NAT[unit] * table[name].to_numpy()
                assert np.allclose(found.to_numpy(), expected, equal_nan=True), name
            else:
                assert found.equals(table[name]), name


def judged():
    results = {
        "variant": list("abab"),
        "seed": [1, 1, 2, 2],
        "loss": [1, 2, 1, 3],
    }
    found = lmzoo.judge(pl.DataFrame(results), by="variant", metric="loss")
    return found.report


@pytest.mark.parametrize("kind", ["ranking", "judged"])
def test_programs_find_the_columns_by_their_names(kind, toy):
    """A renamed column breaks them, so each name is written a second time."""
    names = rows("lab/analysis/csv_columns.toml", kind).split()
    report = judged()
    if kind == "ranking":
        report = study_ranking(add_points(toy).write())
    header, _, _ = render(report, "csv").partition("\n")
    columns = header.split(",")
    if "warnings" in columns:
        columns.remove("warnings")
    assert columns == names
    row, *_ = json.loads(render(report, "json"))["rows"]
    assert row.keys() == set(names) - {"made_by"}


@pytest.fixture
def with_a_column(toy, half_column):
    """A study of tables with one more column, and its first value."""
    add_points(toy)
    return toy.path, planted(toy.path)


def planted(path, **options):
    frame = study_ranking(path, **options).frame
    return frame["planted_half"].drop_nulls()[0]


@pytest.mark.parametrize("format", ["table", *FORMATS])
def test_a_column_that_is_added_is_in_every_form(with_a_column, format):
    path, value = with_a_column
    text = render(study_ranking(path), format, width=200)
    if format in ("csv", "json"):
        assert str(value) in text
    else:
        assert f"{value:.4f}" in text
    if format != "csv":
        assert "half of it: half of the loss's interval" in text


def test_a_column_that_is_added_is_on_the_page(with_a_column, no_charts):
    path, value = with_a_column
    page = unescape(render_report(path))
    assert "half of the loss's interval" in page
    assert f">{value:.4f}</td>" in page


def test_a_column_that_is_added_follows_the_unit(with_a_column):
    path, value = with_a_column
    assert planted(path, unit="bpc") == pytest.approx(PER_NAT["bpc"] * value)


# Rounded to three decimals, a p below 0.05 and one above would be 0.050.
@pytest.mark.parametrize(
    ("p", "text"), [(0.0496, "0.04960"), (0.0504, "0.05040"), (0.0506, "0.051")]
)
def test_no_rounded_number_contradicts_a_word(p, text):
    assert format_p(p) == text


def test_no_mean_is_a_negative_zero():
    assert format_mean(-0.0004, -0.0024, 0.0016, "+.3f") == "0.000 ±0.002"
