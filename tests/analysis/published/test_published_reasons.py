"""Why a published number and ours differ: recipe, data; and the n-gram models on the same data."""

import json

import pytest

from lmzoo import zoo
from lmzoo.analysis.published.published_reasons import explain_difference
from lmzoo.analysis.published.published_rows import TABLES
from lmzoo.analysis.published.published_runs import compare_with_published
from lmzoo.analysis.published.published_table import ngram_lines, published_comparison
from lmzoo.analysis.records.load import load_study
from lmzoo.analysis.text.render import render
from lmzoo.contract import MODELS

WORD = TABLES[0]
COMMON = {"corpus": {"name": "multi30k_en"}, "length": 20, "unit": "word"}


def _config(label, norm="rms"):
    cuts = sorted(next(row.positions for row in WORD.rows() if row.label == label))
    fields = {"width": 128, "norm": norm, "cell": {"name": "mgu", "cuts": cuts}}
    return MODELS.dump(zoo.config("DLM46", **fields))


def _ngram(order):
    return {"name": "ngram_count", "order": order, "smoothing": "kneser_ney", "alpha": 0.1}


def test_a_reconstruction_does_not_leak_the_future():
    frames = {table.name: compare_with_published(table, []) for table in TABLES}
    words = next(table for table in TABLES if table.name == "autoencoder_word_l20")
    reasons = {row["row"]: explain_difference(words, row) for row in frames[words.name].to_dicts()}
    assert all(reason.startswith("a reconstruction") for reason in reasons.values())
    assert not any("leak the future" in reason for reason in reasons.values())
    assert "divided by their deviation, no leak" in reasons["DLM53 E=128 K=400"]
    bound = next(row for row in frames["multi30k_char_l100"].to_dicts() if row["row"] == "DLM51")
    assert explain_difference(TABLES[1], bound).startswith("a bound; inputs leak the future")


@pytest.fixture
def with_ngrams(toy):
    """Three sound rows with sentence losses 5, 4.7 and 4.4; n-gram models with 5.8 and 4.6."""
    toy.epochs = 20
    for label, loss in (("DLM46", 5.0), ("DLM46 {4}", 4.7), ("DLM46 {5}", 4.4)):
        losses = [2 * loss + step for step in (-0.1, 0.0, 0.1)]
        recipe = {"accumulate": "step"}
        toy.add_point(label, losses, model=_config(label), recipe=recipe, **COMMON)
    for order, loss in ((1, 11.6), (5, 9.2)):
        toy.add_point(f"count {order}", [loss] * 3, model=_ngram(order), **COMMON)
    return toy


def _reasons(toy, label="DLM46"):
    frame = compare_with_published(WORD, [load_study(toy.path)])
    return explain_difference(WORD, next(row for row in frame.to_dicts() if row["row"] == label))


def test_the_legend_has_the_ngram_losses_and_the_rows_that_lose_to_them(with_ngrams):
    line = (
        "multi30k_word, n-gram models on the same data: Kneser-Ney 5-gram 4.600, unigram 5.800; "
        "loses to Kneser-Ney 5-gram (4.600): DLM46; "
        "no clear difference from it: DLM46 cut state_to_candidate (4)"
    )
    assert ngram_lines(WORD, compare_with_published(WORD, [load_study(with_ngrams.path)])) == [line]
    assert line in render(published_comparison([with_ngrams.path]), "table", width=300)


def test_an_ngram_model_counted_after_the_published_epoch_is_included(with_ngrams):
    """A count model has one epoch, that of the budget, which may be later than the published."""
    for run in with_ngrams.study_json["chosen"]["count 5"]["runs"]:
        file = with_ngrams.records_path(run)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        late = next(line for line in lines if line.get("epoch") == 20) | {"epoch": 30}
        end = {"event": "end", "epoch": 30, "status": "finished"}
        file.write_text(f"{json.dumps(late)}\n{json.dumps(end)}\n")
    frame = compare_with_published(WORD, [load_study(with_ngrams.path)])
    assert frame.filter(row="DLM46")["kn5"].to_list() == pytest.approx([4.6])
    assert frame.filter(row="DLM46")["sound_epoch"].to_list() == [20]


def test_ngram_models_of_other_data_are_not_included(toy):
    toy.epochs = 20
    recipe = {"accumulate": "step"}
    toy.add_point("DLM46", [10.0, 10.2], model=_config("DLM46"), recipe=recipe, **COMMON)
    toy.add_point("count", [9.2] * 2, model=_ngram(5), fingerprint="beef", **COMMON)
    frame = compare_with_published(WORD, [load_study(toy.path)])
    assert set(frame["kn5"]) == {None}
    assert ngram_lines(WORD, frame) == []


def test_the_reason_lists_differences_of_the_recipe(toy):
    toy.epochs = 20
    sound = {"optimiser": "adam", "lr": 0.0123456, "batch": 100, "accumulate": "step"}
    published = {"optimiser": "rmsprop", "lr": 0.001, "batch": 100, "accumulate": "epoch"}
    toy.add_point("sound", [10.0, 10.2], model=_config("DLM46"), recipe=sound, **COMMON)
    assert "recipe" not in _reasons(toy)
    norm = _config("DLM46", norm="time_std")
    toy.add_point("published", [9.0, 9.2], model=norm, recipe=published, **COMMON)
    text = "also has optimiser adam instead of rmsprop, lr 0.0123 instead of 0.001;"
    assert text in _reasons(toy)
    same = {**published, "optimiser": "adam", "lr": sound["lr"]}
    toy.add_point("accumulated", [9.0, 9.2], model=_config("DLM46"), recipe=same, **COMMON)
    assert "recipe" not in _reasons(toy)


@pytest.mark.parametrize(("split", "expected"), [("official", True), ("seed", False)])
def test_the_reason_names_another_split(toy, split, expected):
    toy.epochs = 20
    common = {**COMMON, "corpus": {"name": "multi30k_en", "split": split}}
    toy.add_point("a", [10.0, 10.2], model=_config("DLM46"), **common)
    assert ("ours has split=official, not seed" in _reasons(toy)) == expected


def test_only_columns_of_the_table_are_explained(with_ngrams):
    text = render(published_comparison([with_ngrams.path], table="multi30k_word"), "md")
    assert "; sound: neither" in text
    assert "leaking: only" not in text
    assert "accumulated: only" not in text
    row = next(row for row in WORD.rows() if row.label == "DLM46")
    with_ngrams.add_point(
        "accumulated", [9.0], model=_config(row.label), recipe={"accumulate": "epoch"}, **COMMON
    )
    text = render(published_comparison([with_ngrams.path], table="multi30k_word"), "md")
    assert (
        "gradients accumulated for an epoch; accumulated: only the gradients; sound: neither"
        in text
    )
    assert "leaking: only" not in text
