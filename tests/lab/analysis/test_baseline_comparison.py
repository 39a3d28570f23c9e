"""The comparison of points with the Kneser-Ney 5-gram of their table."""

import json

import pytest

from lmzoo.lab.analysis.baseline_comparison import BASELINE_COLUMNS
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import render
from tests.lab.analysis.toy_study import rank, row

KN5 = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney", "alpha": 0.1}
COUNT = [3.947, 3.947, 3.947]
LINE = (
    "loses to Kneser-Ney 5-gram (3.947): cut worst, cut worse; "
    "no clear difference from it: cut near"
)


@pytest.fixture
def compared(toy):
    toy.add_point("full", [3.80, 3.81, 3.82])
    toy.add_point("near", [3.90, 3.94, 4.02])
    toy.add_point("worse", [4.10, 4.11, 4.12])
    toy.add_point("worst", [4.00, 4.01, 4.03])
    toy.add_point("count", COUNT, model=KN5)
    return toy


def _outcomes(frame):
    return dict(frame.select("point", "kn5").iter_rows())


def test_a_point_loses_wins_or_is_undecided(compared):
    outcomes = _outcomes(rank(compared))
    expected = {"full": "wins", "near": "undecided", "worse": "loses", "worst": "loses"}
    assert outcomes == {**expected, "count": None}


def test_the_interval_covers_the_tuning_and_the_words_the_number_of_rows(compared):
    result = row(rank(compared), "worst")
    assert abs(result["kn5_difference"] - (result["loss"] - COUNT[0])) < 1e-9
    assert result["kn5_difference_low"] > 0
    compared.study_json["chosen"]["worst"]["tuning_sd"] = 0.2
    frame = rank(compared)
    assert row(frame, "worst")["kn5"] == "undecided"
    assert row(frame, "worse")["kn5"] == "loses"


def test_one_seed_is_not_decided(compared):
    compared.add_point("once", [5.0])
    result = row(rank(compared), "once")
    assert (result["kn5"], result["kn5_difference_low"]) == ("one seed", None)
    assert result["kn5_difference"] == pytest.approx(5.0 - 3.947)
    compared.add_point("lucky", [1.0])
    text = render(study_ranking(compared.path), "md")
    assert f"{LINE}; above it, with one seed: cut once" in text


def test_a_leaking_point_may_lose_but_not_win(compared):
    compared.add_point("reads ahead", [1.0, 1.1, 1.2], leaks="time_std")
    compared.add_point("in vain", [5.0, 5.1, 5.2], leaks="time_std")
    outcomes = _outcomes(rank(compared))
    assert (outcomes["reads ahead"], outcomes["in vain"]) == (None, "loses")


def test_a_point_without_a_loss_has_no_outcome(compared):
    compared.add_point("wild", [None, None, None])
    assert row(rank(compared), "wild")["kn5"] is None


@pytest.mark.parametrize("other", [{"order": 3}, {"smoothing": "add_alpha"}])
def test_only_the_5_gram_is_the_baseline_and_count_models_are_not_compared(toy, other):
    toy.add_point("full", [4.1, 4.2, 4.3])
    toy.add_point("other", [3.0, 3.0, 3.0], model={**KN5, **other})
    assert set(rank(toy)["kn5"]) == {None}
    toy.add_point("count", COUNT, model=KN5)
    assert _outcomes(rank(toy)) == {"full": "loses", "other": None, "count": None}


def test_other_kinds_and_other_data_are_not_compared(compared):
    compared.add_point("vae", [9.0, 9.1, 9.2], score="bound")
    compared.add_point("elsewhere", [9.0, 9.1, 9.2], fingerprint="beef")
    outcomes = _outcomes(rank(compared))
    assert (outcomes["vae"], outcomes["elsewhere"], outcomes["worse"]) == (None, None, "loses")


def test_points_are_compared_where_the_entropy_is_known_too(toy):
    """The distance to the entropy floor does not say that a table of counts is better."""
    floor = {"token": 1.0, "sentence": 1.1}
    toy.add_point("full", [4.1, 4.2, 4.3], floor=floor)
    toy.add_point("count", COUNT, model=KN5, floor=floor)
    assert row(rank(toy), "full")["kn5"] == "loses"
    assert "loses to Kneser-Ney 5-gram (3.947): cut full" in render(study_ranking(toy.path), "md")


@pytest.mark.parametrize("format", ["table", "md", "latex"])
def test_points_that_lose_are_listed_in_the_legend(compared, format):
    text = render(study_ranking(compared.path), format, width=200)
    assert LINE in text
    assert text.index(LINE) > text.index("how each setting was found")


def test_json_and_csv_have_the_outcome_as_columns(compared):
    rows = {r["label"]: r for r in json.loads(render(study_ranking(compared.path), "json"))["rows"]}
    assert rows["cut worse"]["kn5"] == "loses"
    assert rows["cut worse"]["kn5_difference"] == pytest.approx(4.11 - 3.947)
    header, *lines = render(study_ranking(compared.path), "csv").splitlines()
    column = header.split(",").index("kn5")
    assert header.split(",")[column : column + 4] == list(BASELINE_COLUMNS)
    assert sum(",loses," in line for line in lines) == 2


def test_undecided_points_are_listed_if_none_loses(toy):
    toy.add_point("near", [3.90, 3.94, 4.02])
    toy.add_point("count", COUNT, model=KN5)
    text = render(study_ranking(toy.path), "md")
    assert "\nno clear difference from Kneser-Ney 5-gram (3.947): cut near" in text
    assert "loses" not in text


def test_the_baseline_of_a_text_is_the_n_gram_of_the_best_order(toy):
    toy.add_point("near", [3.90, 3.94, 4.02])
    toy.add_point("count", COUNT, model=KN5)
    toy.add_point("Kneser-Ney n-gram", [3.5] * 3, model={**KN5, "order": 0})
    text = render(study_ranking(toy.path), "md")
    assert "loses to Kneser-Ney n-gram (3.500): cut near" in text
    assert _outcomes(rank(toy)) == {"near": "loses", "count": None, "Kneser-Ney n-gram": None}
