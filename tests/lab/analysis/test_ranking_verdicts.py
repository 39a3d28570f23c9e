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
    noise = np.random.default_rng(0).normal(0, 0.003, (len(OFFSETS), 5))
    for (name, offset), losses in zip(OFFSETS.items(), noise, strict=True):
        toy.add_point(name, (3 + offset + losses).tolist())
    return toy


def words(frame):
    return {r["point"]: r["verdict"] for r in frame.to_dicts()}


def test_the_margin_is_that_of_the_command_of_the_study_or_the_default(ranked):
    found = words(rank(ranked))
    assert [found[name] for name in OFFSETS][:4] == [None, "worse", "better", "negligible"]
    ranked.study_json["margin"] = 0.5
    assert words(rank(ranked))["carry"] == "negligible"
    report = study_ranking(ranked.write(), margin=1e-6)
    assert "negligible" not in set(report.frame["verdict"])
    with pytest.raises(UserError, match="margin -1 is not a positive number"):
        study_ranking(ranked.path, margin=-1)


def test_the_tuning_widens_an_interval(ranked):
    before = row(rank(ranked), "carry")
    ranked.study_json["chosen"]["carry"]["tuning_sd"] = 0.5
    after = row(rank(ranked), "carry")
    assert after["difference_high"] > before["difference_high"] + 0.5
    assert after["verdict"] == "undecided"


def test_baselines_and_leaking_rows_are_outside_the_family(ranked):
    noise = np.random.default_rng(1).normal(0, 0.003, (2, 5))
    ranked.add_point("count", (3.5 + noise[0]).tolist(), model={"name": "ngram_count", "order": 1})
    ranked.study_json["points"][-1]["baseline"] = True
    ranked.add_point("asked", (3.5 + noise[1]).tolist(), model={"name": "ngram_count", "order": 2})
    ranked.add_point("leaky", (2.5 + noise[1]).tolist(), leaks="divides by the future")
    frame = rank(ranked)
    for name in ("count", "leaky"):
        assert (row(frame, name)["verdict"], row(frame, name)["p"]) == (None, None)
        assert row(frame, name)["p_raw"] is not None
    assert row(frame, "asked")["verdict"] == "worse"
    assert frame["p"].count() == 5


def test_divergence_has_a_column_and_is_never_better_or_negligible(ranked):
    ranked.add_point("wild", [2.0, None, 2.0013, 2.01, 2.0027])
    ranked.add_point("none", [None] * 6)
    ranked.add_point("few", [2.0, 2.02, *[None] * 12])
    frame = rank(ranked)
    own = [words(frame)[name] for name in ("wild", "none", "few")]
    assert own == ["undecided", "worse", "worse"]
    assert row(frame, "few")["difference_low"] < row(frame, "few")["difference"] < -0.9
    assert "cut few (12 of 14 seeds diverged)" in " ".join(verdict_lines(frame))
    table = study_ranking(ranked.path).tables[0]
    shown = {r[1]: r[table.header.index("diverged")] for r in table.rows}
    counts = [shown[f"cut {name}"] for name in ("wild", "none", "carry")]
    assert counts == ["1/5, p 1.000", "6/6, p 0.002", ""]


def test_an_old_study_names_its_baselines_by_their_labels(ranked):
    ranked.add_point("count", [3.5] * 5, model={"name": "ngram_count", "order": 1})
    assert row(rank(ranked), "count")["verdict"] == "worse"
    ranked.study_json["points"][-1]["label"] = "unigram count"
    assert row(rank(ranked), "count")["verdict"] is None


def test_the_first_lines_say_the_verdicts(ranked):
    better, same, worse, open_ = lines = verdict_lines(rank(ranked))
    assert better.startswith("better than 'cut full' by more than 0.02 nats: cut gate (gains 0.")
    assert same.startswith("negligible difference from 'cut full', below 0.02 nats: cut same (−0.0")
    assert worse.startswith("worse than 'cut full' by more than 0.02 nats: cut carry (costs 0.")
    assert open_.startswith("worse than 'cut full', size open: cut unclear (costs 0.")
    report = study_ranking(ranked.path)
    assert report.heading[: len(lines)] == lines
    assert load_study(ranked.path).study["question"] == report.question
    close = rank(ranked).with_columns(margin=0.004, difference_low=0.0042, difference_high=0.03)
    assert "than 0.004 nats: cut carry (costs 0.004 to 0.030 nats)" in verdict_lines(close)[2]


def test_a_point_with_one_seed_needs_a_second_one_and_not_a_thousand(toy):
    toy.add_points(full=[2.0, 2.1, 2.3], part=[2.5, None, None])
    said = "undecided, needs two seeds with a loss: cut part (1 of 3 seeds)"
    assert verdict_lines(rank(toy)) == (said,)
