"""Printed tables beside ours: which run is which row, the four ways, and what is said of them."""

import json

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from lmzoo import zoo
from lmzoo.analysis.load import load
from lmzoo.analysis.published_rows import KINDS, LEAKING, TABLES, Row, is_row
from lmzoo.analysis.published_table import agreements, why
from lmzoo.analysis.reproduction import WAYS, reproduction, way
from lmzoo.cli.published import main, render_published
from lmzoo.contract import MODELS
from lmzoo.errors import UserError

WORD = TABLES[0]
ROWS = [(table, row) for table in TABLES for row in table.rows()]
NAMES = [f"{table.name}: {row.label}" for table, row in ROWS]


def config_of(row: Row, width: int = 128, **more):
    """The row as the library itself builds it from the printed positions and sizes."""
    fields = {"width": row.sizes.get("E", width), **more}
    cell = {"DLM46": "mgu", "DLM51": "mgu", "DLM47": "mgru"}.get(row.model)
    if row.mutated and cell:
        key = "mutations" if cell == "mgru" else "cuts"
        fields["cell"] = {"name": cell, key: sorted(row.mutated)}
    if row.model == "DLM40":
        fields |= {"attention": {"heads": 8}, "layers": row.sizes.get("D", 1)}
    elif "W" in row.sizes:
        fields["starts"] = row.sizes["W"]
    return MODELS.write(zoo.config(row.model, **fields))


def test_the_tables_are_the_printed_ones():
    assert [len(table.rows()) for table in TABLES] == [22, 11, 5, 5, 5, 6, 3]
    first = WORD.rows()[0]
    assert (first.label, first.e20, first.e30) == ("DLM47 {4;6}", 3.739, 3.56)
    short, named = TABLES[2].rows(), TABLES[3].rows()
    assert [(r.label, r.e20, r.e30) for r in short] == [(r.label, r.e20, r.e30) for r in named]
    assert sum(row.e20 is None for _, row in ROWS) == 2


@pytest.mark.parametrize(("table", "row"), ROWS, ids=NAMES)
def test_each_row_as_the_library_builds_it_is_that_row_and_no_other(table, row):
    model = config_of(row)
    assert [other.label for other in table.rows() if is_row(model, other, table)] == [row.label]


@pytest.mark.parametrize("row", sorted({row.model for _, row in ROWS}))
def test_the_kind_of_each_row_is_the_librarys(row):
    assert zoo.row(row).score == KINDS.get(row, "exact")


def test_what_a_row_does_not_mean_is_none_of_its_runs():
    plain = {"DLM26": {"num_layers": 2}, "DLM55": {"noise_std": 0.1}, "DLM29": {"starts": 3}}
    for name, fields in plain.items():
        model = MODELS.write(zoo.config(name, width=128, **fields))
        assert not any(is_row(model, row, table) for table, row in ROWS)


@pytest.mark.parametrize(
    ("norm", "accumulate", "expected"),
    [
        ("time_std", "epoch", "published"),
        ("time_std", "step", "leaking"),
        ("rms", "epoch", "kept"),
        ("rms", "step", "sound"),
    ],
)
def test_the_four_ways(norm, accumulate, expected):
    config = {"model": {"norm": norm}, "recipe": {"accumulate": accumulate}}
    assert way(config, Row("DLM46", frozenset(), {}, 1.0, None)) == expected
    causal = way({**config, "model": {"norm": "pre"}}, Row("DLM40", frozenset(), {}, 1.0, None))
    assert causal == ("published" if accumulate == "epoch" else "sound")
    assert ("DLM46" in LEAKING, "DLM40" in LEAKING) == (True, False)


@pytest.fixture
def study(made):
    """Five of the word table's rows, sound and as published; the wild type also half way."""
    made.epochs = 20
    rows = {row.label: row for row in WORD.rows()}
    order = ("DLM46 {4}", "DLM46 {5}", "DLM46 {0}", "DLM46", "DLM46 {7}")
    common = {"corpus": {"name": "multi30k_en"}, "length": 20, "unit": "word", "vocab": 14_450}
    for number, label in enumerate(order):
        for norm, accumulate, loss in (
            ("rms", "step", 5 - number / 10),  # the other way round
            ("time_std", "epoch", 3 + number / 10),  # as printed
            *((("time_std", "step", 3.5), ("rms", "epoch", 5.5)) if label == "DLM46" else ()),
        ):
            name = f"{label} {norm} {accumulate}"
            losses = [2 * loss, 2 * loss + 0.2, None if label == "DLM46 {7}" else 2 * loss - 0.2]
            model, recipe = config_of(rows[label], norm=norm), {"accumulate": accumulate}
            made.point(name, losses, model=model, recipe=recipe, **common)
    return made.path


def test_ours_stand_beside_the_printed(study):
    frame = reproduction(WORD, [load(study)])
    rows = {row["row"]: row for row in frame.to_dicts()}
    wild = rows["DLM46"]
    assert [wild[name] for name in WAYS] == pytest.approx([3.3, 3.5, 5.5, 4.7])
    # three seeds 0.1 apart: t(2) · 0.1 / √3
    assert wild["sound_half"] == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)
    assert (wild["e20"], wild["e30"], wild["sound_epoch"]) == (3.8209, 3.72316, 20)
    lost = rows["DLM46 {7}"]
    assert (lost["sound_seeds"], lost["sound_diverged"]) == (3, 1)
    assert rows["DLM47 {4}"]["sound"] is None
    assert rows["DLM47 {4}"]["sound_seeds"] == 0


def test_the_reasons_carry_what_was_measured(study):
    frame = reproduction(WORD, [load(study)])
    reason = {row["row"]: why(WORD, row) for row in frame.to_dicts()}
    assert "leak the future (−1.200)" in reason["DLM46"]
    assert "kept for an epoch (+0.800)" in reason["DLM46"]
    assert "both together −1.400" in reason["DLM46"]
    assert "V=14,450, not 38,783" in reason["DLM46"]
    assert "K=32, not 400" in reason["DLM46"]
    assert "E=" not in reason["DLM46"]
    assert "ours has" not in reason["DLM47 {4}"]
    assert reason["DLM51 {0;4;5}"].startswith("a bound; ")
    assert "{2;7}" in reason["DLM46 {2;3;4;5}"]


def test_orders_are_compared_within_a_kind(study):
    frame = reproduction(WORD, [load(study)])
    lines = agreements(WORD, frame)
    assert len(lines) == 1  # the one bound has nothing to be ordered with
    assert "ours as published +1.00" in lines[0]
    assert "; sound −1.00" in lines[0]
    assert lines[0].count("over 5 rows") == 2


def test_another_corpus_is_taken_only_when_asked(made):
    model = config_of(WORD.rows()[3])
    made.point("a", [2.0, 2.0], model=model, unit="word")
    studies = [load(made.path)]
    assert reproduction(WORD, studies)["sound_seeds"].sum() == 0
    asked = reproduction(WORD, studies, any_corpus=True)
    assert asked["sound_seeds"].sum() == 2
    told = why(WORD, asked.filter(pl.col("sound_seeds") > 0).row(0, named=True))
    assert "ours on ptb" in told
    assert "after 3 epochs" in told


def test_without_runs_every_row_is_not_run():
    text = render_published([], "json")
    rows = json.loads(text)["rows"]
    assert len(rows) == len(ROWS)
    assert all(row[f"{name}_seeds"] == 0 for row in rows for name in WAYS)
    assert render_published([], "md", table="cath_l20").count("not run") == 10


def test_a_wrong_table_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no table 'cath'; S0 printed: multi30k_word"):
        render_published([], table="cath")

    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [str(tmp_path / "nowhere")])
    assert done.exit_code == 2
    assert "no folder" in done.output
