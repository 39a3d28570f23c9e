"""Which rows lose to counting: said where it is so, and only where it may be said."""

import json

import pytest

from lmzoo.analysis.baseline_comparison import AGAINST
from lmzoo.cli.rank import render_study
from tests.analysis.synthetic import rank, row

KN5 = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney", "alpha": 0.1}
COUNT = [3.947, 3.947, 3.947]
LINE = "loses to Kneser-Ney 5-gram (3.947): cut worst, cut worse; not told apart from it: cut near"


@pytest.fixture
def judged(made):
    made.point("full", [3.80, 3.81, 3.82])
    made.point("near", [3.90, 3.94, 4.02])
    made.point("worse", [4.10, 4.11, 4.12])
    made.point("worst", [4.00, 4.01, 4.03])
    made.point("count", COUNT, model=KN5)
    return made


def _verdicts(frame):
    return dict(frame.select("point", "kn5").iter_rows())


def test_a_row_loses_wins_or_is_not_told_apart(judged):
    verdicts = _verdicts(rank(judged))
    expected = {"full": "wins", "near": "not told apart", "worse": "loses", "worst": "loses"}
    assert verdicts == {**expected, "count": None}


def test_the_difference_has_the_rows_own_interval(judged):
    found = row(rank(judged), "near")
    shifted = [found[name] - COUNT[0] for name in ("loss", "low", "high")]
    assert [found[f"kn5_difference{end}"] for end in ("", "_low", "_high")] == shifted
    assert shifted[1] < 0 < shifted[2]


def test_one_seed_tells_nothing_apart(judged):
    judged.point("once", [5.0])
    found = row(rank(judged), "once")
    assert (found["kn5"], found["kn5_difference_low"]) == ("one seed", None)
    assert found["kn5_difference"] == pytest.approx(5.0 - 3.947)
    judged.point("lucky", [1.0])
    text = render_study(judged.path, "md")
    assert f"{LINE}; above it, with one seed: cut once" in text


def test_a_row_that_leaks_may_lose_but_not_win(judged):
    judged.point("reads ahead", [1.0, 1.1, 1.2], leaks="time_std")
    judged.point("in vain", [5.0, 5.1, 5.2], leaks="time_std")
    verdicts = _verdicts(rank(judged))
    assert (verdicts["reads ahead"], verdicts["in vain"]) == (None, "loses")


def test_a_row_without_a_loss_has_no_verdict(judged):
    judged.point("wild", [None, None, None])
    assert row(rank(judged), "wild")["kn5"] is None


@pytest.mark.parametrize("other", [{"order": 3}, {"smoothing": "add_alpha"}])
def test_only_the_five_gram_is_the_measure_and_counts_are_not_measured(made, other):
    made.point("full", [4.1, 4.2, 4.3])
    made.point("other", [3.0, 3.0, 3.0], model={**KN5, **other})
    assert set(rank(made)["kn5"]) == {None}
    made.point("count", COUNT, model=KN5)
    assert _verdicts(rank(made)) == {"full": "loses", "other": None, "count": None}


def test_other_kinds_other_data_and_known_floors_are_let_be(judged):
    judged.point("vae", [9.0, 9.1, 9.2], score="bound")
    judged.point("elsewhere", [9.0, 9.1, 9.2], fingerprint="beef")
    verdicts = _verdicts(rank(judged))
    assert (verdicts["vae"], verdicts["elsewhere"], verdicts["worse"]) == (None, None, "loses")


def test_where_the_floor_is_known_nothing_is_said(made):
    floor = {"token": 1.0, "sentence": 1.1}
    made.point("full", [4.1, 4.2, 4.3], floor=floor)
    made.point("count", COUNT, model=KN5, floor=floor)
    frame = rank(made)
    assert all(set(frame[name]) == {None} for name in AGAINST)
    assert "5-gram" not in render_study(made.path, "md")


@pytest.mark.parametrize("format", ["table", "md", "latex"])
def test_the_losers_are_named_below_the_table(judged, format):
    text = render_study(judged.path, format, width=200)
    assert LINE in text
    assert text.index(LINE) > text.index("how each setting was found")


def test_a_file_for_machines_has_it_in_columns(judged):
    rows = {r["label"]: r for r in json.loads(render_study(judged.path, "json"))["rows"]}
    assert rows["cut worse"]["kn5"] == "loses"
    assert rows["cut worse"]["kn5_difference"] == pytest.approx(4.11 - 3.947)
    header, *lines = render_study(judged.path, "csv").splitlines()
    place = header.split(",").index("kn5")
    assert header.split(",")[place : place + 4] == list(AGAINST)
    assert sum(",loses," in line for line in lines) == 2


def test_without_losers_the_undecided_are_still_named(made):
    made.point("near", [3.90, 3.94, 4.02])
    made.point("count", COUNT, model=KN5)
    text = render_study(made.path, "md")
    assert "\nnot told apart from Kneser-Ney 5-gram (3.947): cut near" in text
    assert "loses" not in text
