"""Verdicts in a ranking: their columns, their family, their words."""

import numpy as np
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.verdict_lines import verdict_lines
from tests.lab.analysis.toy_study import rank, row

OFFSETS = {"full": 0.0, "carry": 0.3, "gate": -0.3, "same": 0.0, "unclear": 0.02}


@pytest.fixture
def ranked(toy):
    rng = np.random.default_rng(0)
    for name, offset in OFFSETS.items():
        # The default margin is 0.02.
        losses = 3 + offset + rng.normal(0, 0.003, 5)
        toy.add_point(name, losses.tolist())
    return toy


def words(frame):
    """Return the verdict of each point."""
    return dict(frame.select("point", "verdict").iter_rows())


def test_each_point_has_its_verdict_by_the_default_margin(ranked):
    expected = {"full": None, "carry": "worse", "gate": "better", "same": "negligible"}
    assert expected.items() <= words(rank(ranked)).items()


def test_the_margin_of_the_study_counts(ranked):
    ranked.study_json["margin"] = 0.5
    assert words(rank(ranked))["carry"] == "negligible"


def test_the_margin_of_the_command_counts_before_that_of_the_study(ranked):
    ranked.study_json["margin"] = 0.5
    # Smaller than any difference.
    report = study_ranking(ranked.write(), margin=1e-6)
    assert "negligible" not in set(report.frame["verdict"])


def test_a_negative_margin_is_refused(ranked):
    with pytest.raises(UserError, match="margin -1 is not a positive number"):
        study_ranking(ranked.path, margin=-1)


def test_the_tuning_widens_an_interval(ranked):
    before = row(rank(ranked), "carry")
    ranked.study_json["chosen"]["carry"]["tuning_sd"] = 0.5
    after = row(rank(ranked), "carry")
    # The error of the tuning is larger than the difference of 0.3.
    assert after["difference_high"] > before["difference_high"] + 0.5
    assert after["verdict"] == "undecided"


@pytest.fixture
def with_outsiders(ranked):
    """The ranking with a baseline, a model of counts as a point, and a leaking point."""
    noise = np.random.default_rng(1).normal(0, 0.003, (2, 5))
    losses = (3.5 + noise).tolist()
    ranked.add_point("count", losses[0], model={"name": "ngram_count", "order": 1})
    # The other model of counts is a point of the study.
    ranked.study_json["points"][-1]["baseline"] = True
    ranked.add_point("asked", losses[1], model={"name": "ngram_count", "order": 2})
    ranked.add_point("leaky", (2.5 + noise[1]).tolist(), leaks="divides by the future")
    return rank(ranked)


@pytest.mark.parametrize("name", ["count", "leaky"])
def test_baselines_and_leaking_rows_are_outside_the_family(with_outsiders, name):
    found = row(with_outsiders, name)
    assert found["verdict"] is None
    assert found["p"] is None
    assert found["p_raw"] is not None


def test_a_model_of_counts_that_was_asked_for_is_in_the_family(with_outsiders):
    assert row(with_outsiders, "asked")["verdict"] == "worse"
    assert with_outsiders["p"].count() == 5


@pytest.fixture
def diverging(ranked):
    """Points of which one run, all runs, and most runs diverge."""
    ranked.add_points(
        """
        wild: 2.0  -  2.0013  2.01  2.0027
        none: -    -  -       -     -       -
        """
    )
    ranked.add_point("few", [2.0, 2.02, *[None] * 12])
    return ranked


@pytest.mark.parametrize(
    ("name", "verdict"), [("wild", "undecided"), ("none", "worse"), ("few", "worse")]
)
def test_a_point_that_diverges_is_never_better_or_negligible(diverging, name, verdict):
    assert words(rank(diverging))[name] == verdict


def test_a_point_that_mostly_diverges_is_worse_though_its_mean_is_better(diverging):
    frame = rank(diverging)
    found = row(frame, "few")
    assert found["difference_low"] < found["difference"] < -0.9
    assert "cut few (12 of 14 seeds diverged)" in " ".join(verdict_lines(frame))


@pytest.mark.parametrize(
    ("name", "count"), [("wild", "1/5, p 1.000"), ("none", "6/6, p 0.002"), ("carry", "")]
)
def test_divergence_has_a_column(diverging, name, count):
    table = study_ranking(diverging.path).tables[0]
    column = table.header.index("diverged")
    (shown,) = (cells for cells in table.rows if cells[1] == f"cut {name}")
    assert shown[column] == count


def test_an_old_study_names_its_baselines_by_their_labels(ranked):
    ranked.add_points("count: 3.5 3.5 3.5 3.5 3.5", model={"name": "ngram_count", "order": 1})
    assert row(rank(ranked), "count")["verdict"] == "worse"
    ranked.study_json["points"][-1]["label"] = "unigram count"
    assert row(rank(ranked), "count")["verdict"] is None


@pytest.mark.parametrize(
    ("number", "beginning"),
    [
        (0, "better than 'cut full' by more than 0.02 nats: cut gate (gains 0."),
        (1, "negligible difference from 'cut full', below 0.02 nats: cut same (−0.0"),
        (2, "worse than 'cut full' by more than 0.02 nats: cut carry (costs 0."),
        (3, "worse than 'cut full', size open: cut unclear (costs 0."),
    ],
)
def test_the_first_lines_say_the_verdicts(ranked, number, beginning):
    line = verdict_lines(rank(ranked))[number]
    assert line.startswith(beginning)
    assert study_ranking(ranked.path).heading[number] == line


def test_a_report_has_the_question_of_its_study(ranked):
    question = load_study(ranked.path).study["question"]
    assert study_ranking(ranked.path).question == question


def test_a_margin_and_an_end_that_are_close_have_enough_digits(ranked):
    frame = rank(ranked)
    close = frame.with_columns(margin=0.004, difference_low=0.0042, difference_high=0.03)
    assert "than 0.004 nats: cut carry (costs 0.004 to 0.030 nats)" in verdict_lines(close)[2]


def test_a_point_with_one_seed_needs_a_second_one_and_not_a_thousand(toy):
    toy.add_points(
        """
        full: 2.0  2.1  2.3
        part: 2.5  -    -
        """
    )
    said = "undecided, needs two seeds with a loss: cut part (1 of 3 seeds)"
    assert verdict_lines(rank(toy)) == (said,)
