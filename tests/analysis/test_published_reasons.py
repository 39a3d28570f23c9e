"""Why a printed number and ours differ: the recipe, the data, and what counting has on them."""

import json

import pytest

from lmzoo import zoo
from lmzoo.analysis.load import load
from lmzoo.analysis.published_rows import TABLES
from lmzoo.analysis.published_table import counting, why
from lmzoo.analysis.reproduction import reproduction
from lmzoo.cli.published import render_published
from lmzoo.contract import MODELS

WORD = TABLES[0]
COMMON = {"corpus": {"name": "multi30k_en"}, "length": 20, "unit": "word"}


def _config(label, norm="rms"):
    cuts = sorted(next(row.mutated for row in WORD.rows() if row.label == label))
    fields = {"width": 128, "norm": norm, "cell": {"name": "mgu", "cuts": cuts}}
    return MODELS.write(zoo.config("DLM46", **fields))


def _count(order):
    return {"name": "ngram_count", "order": order, "smoothing": "kneser_ney", "alpha": 0.1}


def test_a_reconstruction_has_no_future_to_leak():
    frames = {table.name: reproduction(table, []) for table in TABLES}
    words = next(table for table in TABLES if table.name == "autoencoder_word_l20")
    said = {row["row"]: why(words, row) for row in frames[words.name].to_dicts()}
    assert all(reason.startswith("a reconstruction") for reason in said.values())
    assert not any("leak the future" in reason for reason in said.values())
    assert "divided by their deviation, no leak" in said["DLM53 E=128 K=400"]
    bound = next(row for row in frames["multi30k_char_l100"].to_dicts() if row["row"] == "DLM51")
    assert why(TABLES[1], bound).startswith("a bound; inputs leak the future")


@pytest.fixture
def counted(made):
    """Three rows, sound, of mean sentence losses 5, 4.7 and 4.4; counts of 5.8 and 4.6."""
    made.epochs = 20
    for label, loss in (("DLM46", 5.0), ("DLM46 {4}", 4.7), ("DLM46 {5}", 4.4)):
        losses = [2 * loss + step for step in (-0.1, 0.0, 0.1)]
        recipe = {"accumulate": "step"}
        made.point(label, losses, model=_config(label), recipe=recipe, **COMMON)
    for order, loss in ((1, 11.6), (5, 9.2)):
        made.point(f"count {order}", [loss] * 3, model=_count(order), **COMMON)
    return made


def _reasons(made, label="DLM46"):
    frame = reproduction(WORD, [load(made.path)])
    return why(WORD, next(row for row in frame.to_dicts() if row["row"] == label))


def test_counting_stands_below_the_table_and_who_loses_to_it(counted):
    line = (
        "multi30k_word, counting on the same data: Kneser-Ney 5-gram 4.600, unigram 5.800; "
        "loses to Kneser-Ney 5-gram (4.600): DLM46; not told apart from it: DLM46 {4}"
    )
    assert counting(WORD, reproduction(WORD, [load(counted.path)])) == [line]
    assert line in render_published([counted.path], "table", width=300)


def test_a_count_made_once_and_late_still_stands(counted):
    """Counting has one epoch, that of the budget, which may lie behind the printed column."""
    for run in counted.study["chosen"]["count 5"]["runs"]:
        file = counted.records(run)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        late = next(line for line in lines if line.get("epoch") == 20) | {"epoch": 30}
        end = {"event": "end", "epoch": 30, "status": "finished"}
        file.write_text(f"{json.dumps(late)}\n{json.dumps(end)}\n")
    frame = reproduction(WORD, [load(counted.path)])
    assert frame.filter(row="DLM46")["kn5"].to_list() == pytest.approx([4.6])
    assert frame.filter(row="DLM46")["sound_epoch"].to_list() == [20]


def test_counts_of_other_data_are_no_measure(made):
    made.epochs = 20
    recipe = {"accumulate": "step"}
    made.point("DLM46", [10.0, 10.2], model=_config("DLM46"), recipe=recipe, **COMMON)
    made.point("count", [9.2] * 2, model=_count(5), fingerprint="beef", **COMMON)
    frame = reproduction(WORD, [load(made.path)])
    assert set(frame["kn5"]) == {None}
    assert counting(WORD, frame) == []


def test_the_recipes_differences_are_told_beside_what_they_cost(made):
    made.epochs = 20
    sound = {"optimiser": "adam", "lr": 0.0123456, "batch": 100, "accumulate": "step"}
    kept = {"optimiser": "rmsprop", "lr": 0.001, "batch": 100, "accumulate": "epoch"}
    made.point("sound", [10.0, 10.2], model=_config("DLM46"), recipe=sound, **COMMON)
    assert "recipe" not in _reasons(made)
    norm = _config("DLM46", norm="time_std")
    made.point("published", [9.0, 9.2], model=norm, recipe=kept, **COMMON)
    told = "the sound recipe also has optimiser adam for rmsprop, lr 0.0123 for 0.001;"
    assert told in _reasons(made)
    again = {**kept, "optimiser": "adam", "lr": sound["lr"]}
    made.point("kept", [9.0, 9.2], model=_config("DLM46"), recipe=again, **COMMON)
    assert "recipe" not in _reasons(made)


@pytest.mark.parametrize(("split", "said"), [("official", True), ("seed", False)])
def test_another_split_is_told(made, split, said):
    made.epochs = 20
    common = {**COMMON, "corpus": {"name": "multi30k_en", "split": split}}
    made.point("a", [10.0, 10.2], model=_config("DLM46"), **common)
    assert ("ours has split=official, not seed" in _reasons(made)) == said


def test_only_columns_that_stand_are_explained(counted):
    text = render_published([counted.path], "md", table="multi30k_word")
    assert "; sound: neither" in text
    assert "leaking: only" not in text
    assert "kept: only" not in text
    row = next(row for row in WORD.rows() if row.label == "DLM46")
    counted.point("kept", [9.0], model=_config(row.label), recipe={"accumulate": "epoch"}, **COMMON)
    text = render_published([counted.path], "md", table="multi30k_word")
    assert "gradients kept for an epoch; kept: only the latter; sound: neither" in text
    assert "leaking: only" not in text
