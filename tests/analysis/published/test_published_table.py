"""Published tables: which run belongs to which row, the four variants, and the tables as text."""

import json

import polars as pl
import pytest

from lmzoo import zoo
from lmzoo.analysis.published.published_reasons import explain_difference
from lmzoo.analysis.published.published_rows import (
    LEAKING,
    SCORE_KINDS,
    TABLES,
    PublishedRow,
    matches_row,
)
from lmzoo.analysis.published.published_runs import VARIANTS, compare_with_published, variant_of
from lmzoo.analysis.published.published_table import agreement_lines, published_comparison
from lmzoo.analysis.records.load import load_study
from lmzoo.analysis.text.render import render
from lmzoo.contract import MODELS
from lmzoo.errors import UserError

WORD = TABLES[0]
ROWS = [(table, row) for table in TABLES for row in table.rows()]
NAMES = [f"{table.name}: {row.label}" for table, row in ROWS]


def config_of(row: PublishedRow, width: int = 128, **options):
    """Return the model config that the zoo builds from the published positions and sizes."""
    fields = {"width": row.sizes.get("E", width), **options}
    cell = {"DLM46": "mgu", "DLM51": "mgu", "DLM47": "mgru"}.get(row.model)
    if row.positions and cell:
        key = "mutations" if cell == "mgru" else "cuts"
        fields["cell"] = {"name": cell, key: sorted(row.positions)}
    if row.model == "DLM40":
        fields |= {"attention": {"heads": 8}, "layers": row.sizes.get("D", 1)}
    elif "W" in row.sizes:
        fields["starts"] = row.sizes["W"]
    return MODELS.dump(zoo.config(row.model, **fields))


def test_the_tables_have_the_published_rows():
    assert [len(table.rows()) for table in TABLES] == [22, 11, 5, 5, 5, 6, 3]
    first = WORD.rows()[0]
    assert (first.label, first.e20, first.e30) == ("DLM47 {4;6}", 3.739, 3.56)
    short, named = TABLES[2].rows(), TABLES[3].rows()
    assert [(r.label, r.e20, r.e30) for r in short] == [(r.label, r.e20, r.e30) for r in named]
    assert sum(row.e20 is None for _, row in ROWS) == 2


@pytest.mark.parametrize(("table", "row"), ROWS, ids=NAMES)
def test_the_zoos_model_of_a_row_matches_that_row_only(table, row):
    model = config_of(row)
    assert [other.label for other in table.rows() if matches_row(model, other, table)] == [
        row.label
    ]


@pytest.mark.parametrize("row", sorted({row.model for _, row in ROWS}))
def test_the_score_kind_of_each_row_is_the_zoos(row):
    assert zoo.row(row).score == SCORE_KINDS.get(row, "exact")


def test_a_model_with_other_options_matches_no_row():
    plain = {"DLM26": {"num_layers": 2}, "DLM55": {"noise_std": 0.1}, "DLM29": {"starts": 3}}
    for name, fields in plain.items():
        model = MODELS.dump(zoo.config(name, width=128, **fields))
        assert not any(matches_row(model, row, table) for table, row in ROWS)


@pytest.mark.parametrize(
    ("norm", "accumulate", "expected"),
    [
        ("time_std", "epoch", "published"),
        ("time_std", "step", "leaking"),
        ("rms", "epoch", "accumulated"),
        ("rms", "step", "sound"),
    ],
)
def test_the_four_variants(norm, accumulate, expected):
    config = {"model": {"norm": norm}, "recipe": {"accumulate": accumulate}}
    assert variant_of(config, PublishedRow("DLM46", frozenset(), {}, 1.0, None)) == expected
    causal = variant_of(
        {**config, "model": {"norm": "pre"}}, PublishedRow("DLM40", frozenset(), {}, 1.0, None)
    )
    assert causal == ("published" if accumulate == "epoch" else "sound")
    assert ("DLM46" in LEAKING, "DLM40" in LEAKING) == (True, False)


@pytest.fixture
def study(toy):
    """Five rows of the word table, sound and as published; the wild type in all four variants."""
    toy.epochs = 20
    rows = {row.label: row for row in WORD.rows()}
    order = ("DLM46 {4}", "DLM46 {5}", "DLM46 {0}", "DLM46", "DLM46 {7}")
    common = {"corpus": {"name": "multi30k_en"}, "length": 20, "unit": "word", "vocab": 14_450}
    for number, label in enumerate(order):
        for norm, accumulate, loss in (
            ("rms", "step", 5 - number / 10),  # the reverse of the published order
            ("time_std", "epoch", 3 + number / 10),  # the published order
            *((("time_std", "step", 3.5), ("rms", "epoch", 5.5)) if label == "DLM46" else ()),
        ):
            name = f"{label} {norm} {accumulate}"
            losses = [2 * loss, 2 * loss + 0.2, None if label == "DLM46 {7}" else 2 * loss - 0.2]
            model, recipe = config_of(rows[label], norm=norm), {"accumulate": accumulate}
            toy.add_point(name, losses, model=model, recipe=recipe, **common)
    return toy.path


def test_runs_are_shown_next_to_the_published_numbers(study):
    frame = compare_with_published(WORD, [load_study(study)])
    rows = {row["row"]: row for row in frame.to_dicts()}
    wild = rows["DLM46"]
    assert [wild[name] for name in VARIANTS] == pytest.approx([3.3, 3.5, 5.5, 4.7])
    # three seeds 0.1 apart: t(2) · 0.1 / √3
    assert wild["sound_half"] == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)
    assert (wild["e20"], wild["e30"], wild["sound_epoch"]) == (3.8209, 3.72316, 20)
    partial = rows["DLM46 {7}"]
    assert (partial["sound_seeds"], partial["sound_diverged"]) == (3, 1)
    assert rows["DLM47 {4}"]["sound"] is None
    assert rows["DLM47 {4}"]["sound_seeds"] == 0


def test_the_reasons_have_the_measured_changes(study):
    frame = compare_with_published(WORD, [load_study(study)])
    reason = {row["row"]: explain_difference(WORD, row) for row in frame.to_dicts()}
    assert "leak the future (−1.200)" in reason["DLM46"]
    assert "accumulated for an epoch (+0.800)" in reason["DLM46"]
    assert "both together −1.400" in reason["DLM46"]
    assert "V=14,450, not 38,783" in reason["DLM46"]
    assert "K=32, not 400" in reason["DLM46"]
    assert "E=" not in reason["DLM46"]
    assert "ours has" not in reason["DLM47 {4}"]
    assert reason["DLM51 {0;4;5}"].startswith("a bound; ")
    assert "gate_bias (2), write (7)" in reason["DLM46 {2;3;4;5}"]


def test_orders_are_compared_within_a_kind_of_score(study):
    frame = compare_with_published(WORD, [load_study(study)])
    lines = agreement_lines(WORD, frame)
    assert len(lines) == 1  # a single bound has no order
    assert "ours as published +1.00" in lines[0]
    assert "; sound −1.00" in lines[0]
    assert lines[0].count("over 5 rows") == 2


def test_another_corpus_is_included_only_with_any_corpus(toy):
    model = config_of(WORD.rows()[3])
    toy.add_point("a", [2.0, 2.0], model=model, unit="word")
    studies = [load_study(toy.path)]
    assert compare_with_published(WORD, studies)["sound_seeds"].sum() == 0
    included = compare_with_published(WORD, studies, any_corpus=True)
    assert included["sound_seeds"].sum() == 2
    reason = explain_difference(WORD, included.filter(pl.col("sound_seeds") > 0).row(0, named=True))
    assert "ours on ptb" in reason
    assert "after 3 epochs" in reason


def test_without_runs_every_row_is_shown_as_not_run():
    text = render(published_comparison([]), "json")
    rows = json.loads(text)["rows"]
    assert len(rows) == len(ROWS)
    assert all(row[f"{name}_seeds"] == 0 for row in rows for name in VARIANTS)
    assert render(published_comparison([], table="cath_l20"), "md").count("not run") == 10


def test_mutations_are_shown_by_name():
    text = render(published_comparison([], table="multi30k_word"), "md")
    assert r"| DLM46 cut state\_to\_candidate (4) |" in text
    assert "| DLM47 squash=sigmoid (4), gate=output=centred (6) |" in text


def test_an_unknown_table_is_refused():
    with pytest.raises(UserError, match="no published table 'cath'; known: multi30k_word"):
        published_comparison([], table="cath")
