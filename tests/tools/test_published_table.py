"""Published tables: which run belongs to which row, the four variants, and the tables as text."""

import pytest
from published_rows import KIND_OF_MODEL, LEAKING, TABLES, PublishedRow, matches_row
from published_runs import VARIANTS, compare_with_published, variant_of

from lmzoo import zoo
from lmzoo.contract import MODELS
from lmzoo.lab.analysis.load import load_study

WORD = TABLES[0]
ROWS = [(table, row) for table in TABLES for row in table.rows()]


def config_of(row: PublishedRow, width: int = 128, **options):
    """Return the model config that the zoo builds from the published positions and sizes."""
    fields = {"width": row.sizes.get("E", width)} | options
    positions = sorted(row.positions)
    if positions and row.model in ("DLM46", "DLM51"):
        fields["cell"] = {"name": "mgu", "cuts": positions}
    elif positions and row.model == "DLM47":
        fields["cell"] = {"name": "mgru", "mutations": positions}
    if row.model == "DLM40":
        fields |= {"attention": {"heads": 8}, "layers": row.sizes.get("D", 1)}
    elif "W" in row.sizes:
        fields["starts"] = row.sizes["W"]
    config = zoo.config(row.model, **fields)
    return MODELS.dump(config)


def test_the_zoos_model_of_a_row_matches_that_row_only():
    for table, row in ROWS:
        model = config_of(row)
        found = [other.label for other in table.rows() if matches_row(model, other, table)]
        assert found == [row.label]


def test_a_row_has_the_kind_of_score_of_its_model():
    for _, row in ROWS:
        assert zoo.row(row.model).score == KIND_OF_MODEL.get(row.model, "exact")


def variant(model: str, norm: str, accumulate: str) -> str:
    config = {"model": {"norm": norm}, "recipe": {"accumulate": accumulate}}
    row = PublishedRow(model, frozenset(), {}, 1.0, None)
    return variant_of(config, row)


def test_the_four_variants_of_a_row_whose_norm_leaks_and_the_two_of_another_one():
    assert "DLM46" in LEAKING
    assert variant("DLM46", "time_std", "epoch") == "published"
    assert variant("DLM46", "time_std", "step") == "leaking"
    assert variant("DLM46", "rms", "epoch") == "accumulated"
    assert variant("DLM46", "rms", "step") == "sound"
    assert "DLM40" not in LEAKING
    assert variant("DLM40", "pre", "epoch") == "published"
    assert variant("DLM40", "pre", "step") == "sound"


@pytest.fixture
def study(toy):
    """Five rows of the word table, sound and as published; the wild type in all four variants."""
    toy.epochs = 20
    rows = {row.label: row for row in WORD.rows()}
    order = ("DLM46 {4}", "DLM46 {5}", "DLM46 {0}", "DLM46", "DLM46 {7}")
    common = {"corpus": {"name": "multi30k_en"}, "length": 20, "unit": "word", "vocab": 14_450}
    for number, label in enumerate(order):
        # The reverse of the published order, and the published order.
        variants = [("rms", "step", 5 - number / 10), ("time_std", "epoch", 3 + number / 10)]
        if label == "DLM46":
            variants += [("time_std", "step", 3.5), ("rms", "epoch", 5.5)]
        for norm, accumulate, loss in variants:
            losses = [2 * loss, 2 * loss + 0.2, 2 * loss - 0.2]
            if label == "DLM46 {7}":
                losses[2] = None
            model = config_of(rows[label], norm=norm)
            recipe = {"accumulate": accumulate}
            name = f"{label} {norm} {accumulate}"
            toy.add_point(name, losses, model=model, recipe=recipe, **common)
    return toy.path


def test_runs_are_shown_next_to_the_published_numbers(study):
    frame = compare_with_published(WORD, [load_study(study)])
    rows = {row["row"]: row for row in frame.to_dicts()}
    wild = rows["DLM46"]
    losses = [wild[name] for name in VARIANTS]
    assert losses == pytest.approx([3.3, 3.5, 5.5, 4.7])
    # three seeds 0.1 apart: t(2) · 0.1 / √3
    half = 4.302653 * 0.1 / 3**0.5
    assert wild["sound_half"] == pytest.approx(half, rel=1e-5)
    assert wild["e20"] == 3.8209
    assert wild["e30"] == 3.72316
    assert wild["sound_epoch"] == 20
    partial = rows["DLM46 {7}"]
    assert partial["sound_seeds"] == 3
    assert partial["sound_diverged"] == 1
    not_trained = rows["DLM47 {4}"]
    assert not_trained["sound"] is None
