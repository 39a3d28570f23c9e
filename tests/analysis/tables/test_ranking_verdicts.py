"""Verdicts in a ranking: their columns, their family, their words."""

import numpy as np
import pytest

from lmzoo.analysis.records.load import load_study
from lmzoo.analysis.tables.ranking_table import study_ranking
from lmzoo.analysis.text.verdict_lines import verdict_lines
from lmzoo.errors import UserError
from tests.analysis.toy_study import rank, row

OFFSETS = {"full": 0.0, "carry": 0.3, "gate": -0.3, "same": 0.0, "unclear": 0.02}


@pytest.fixture
def ranked(toy):
    noise = np.random.default_rng(0).normal(0, 0.003, (len(OFFSETS), 5))
    for (name, offset), losses in zip(OFFSETS.items(), noise, strict=True):
        toy.add_point(name, (3 + offset + losses).tolist())
    return toy


def words(frame):
    return {r["point"]: r["verdict"] for r in frame.to_dicts()}


def test_a_study_without_a_margin_has_the_default(ranked):
    frame = rank(ranked)
    assert set(frame["margin"]) == {0.02}
    found = words(frame)
    assert [found[name] for name in OFFSETS][:4] == [None, "worse", "better", "equivalent"]


def test_the_margin_of_the_study_and_of_the_command_count(ranked):
    ranked.study_json["margin"] = 0.5
    assert words(rank(ranked))["carry"] == "equivalent"
    report = study_ranking(ranked.write(), margin=1e-6)
    assert "equivalent" not in set(report.frame["verdict"])
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
    ranked.add_point("leaky", (2.5 + noise[1]).tolist(), leaks="divides by the future")
    frame = rank(ranked)
    for name in ("count", "leaky"):
        assert (row(frame, name)["verdict"], row(frame, name)["p"]) == (None, None)
        assert row(frame, name)["p_raw"] is not None
    assert frame["p"].count() == 4
    assert frame["p"].min() == pytest.approx(4 * frame.drop_nulls("p")["p_raw"].min())


def test_a_diverged_point_is_never_better_or_equivalent(ranked):
    ranked.add_point("wild", [2.0, None, 2.0, 2.01, 2.0])
    ranked.add_point("none", [None] * 5)
    found = words(rank(ranked))
    assert found["wild"] in ("undecided", "worse")
    assert found["none"] == "worse"


def test_the_first_lines_say_the_verdicts(ranked):
    lines = verdict_lines(rank(ranked))
    assert lines[0].startswith("better than 'cut full': cut gate (gains 0.")
    assert lines[1].startswith("equivalent to 'cut full' within 0.02 nats: cut same (−0.0")
    assert lines[2].startswith("worse than 'cut full': cut carry (costs 0.")
    heading = study_ranking(ranked.path).heading
    assert heading[1 : 1 + len(lines)] == lines
    assert load_study(ranked.path).study["question"] == heading[0]
