"""The comparison of points with the Kneser-Ney 5-gram of their table."""

import pytest

from lmzoo.lab.analysis.formatting import join_labels
from lmzoo.lab.analysis.ranking import outcome_line
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import render
from tests.lab.analysis.toy_study import rank, row

KN5 = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney", "alpha": 0.1}
COUNT = [3.947, 3.947, 3.947]
LINE = "loses to Kneser-Ney 5-gram (3.947): cut worst, cut worse"
LINE += "; no clear difference from it: cut near"


@pytest.fixture
def compared(toy):
    toy.add_points(full=[3.80, 3.81, 3.82], near=[3.90, 3.94, 4.02], worse=[4.10, 4.11, 4.12])
    toy.add_point("worst", [4.00, 4.01, 4.03])
    toy.add_point("count", COUNT, model=KN5)
    return toy


def _outcomes(frame):
    return dict(frame.select("point", "kn5").iter_rows())


def test_a_point_loses_wins_or_is_undecided(compared):
    outcomes = _outcomes(rank(compared))
    expected = {"full": "wins", "near": "undecided", "worse": "loses", "worst": "loses"}
    assert outcomes == {**expected, "count": None}


def test_labels_with_commas_are_quoted() -> None:
    assert join_labels(["forget gate, rotary", "rotary"]) == "'forget gate, rotary', rotary"
    outcomes = [("gate, rotary", "loses", 0.1), ("rotary", "loses", 0.2)]
    assert outcome_line(outcomes, 2.0).endswith("(2.000): 'gate, rotary', rotary")


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


def test_the_baseline_of_a_text_is_the_n_gram_of_the_best_order(toy):
    toy.add_point("near", [3.90, 3.94, 4.02])
    toy.add_point("count", COUNT, model=KN5)
    toy.add_point("Kneser-Ney n-gram", [3.5] * 3, model={**KN5, "order": 0})
    text = render(study_ranking(toy.path), "md")
    assert "loses to Kneser-Ney n-gram (3.500): cut near" in text
    assert _outcomes(rank(toy)) == {"near": "loses", "count": None, "Kneser-Ney n-gram": None}
