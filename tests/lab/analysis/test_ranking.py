"""The ranking: its numbers, its order, its options."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.columns import names
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from tests.lab.analysis.toy_study import rank, row


def test_numbers_equal_scipys(toy):
    full, gate, carry = np.random.default_rng(0).normal(3, 0.1, (3, 5))
    for name, losses in {"full": full, "gate": gate, "carry": carry}.items():
        toy.add_point(name, losses.tolist())
    frame = rank(toy)
    others = {"gate": gate, "carry": carry}
    tests = {name: stats.ttest_ind(x, full, equal_var=False) for name, x in others.items()}
    low_p, high_p = sorted(test.pvalue for test in tests.values())
    adjusted = [min(1, 2 * low_p), max(min(1, 2 * low_p), high_p)]
    assert np.allclose(sorted(frame["p"].drop_nulls()), adjusted)
    for name, losses in others.items():
        result, test = row(frame, name), tests[name]
        interval = test.confidence_interval(0.95)
        low, high = stats.t.interval(0.95, 4, loc=losses.mean(), scale=stats.sem(losses))
        own = [result[c] for c in ("low", "high", "difference_low", "difference_high", "p_raw")]
        assert np.allclose(own, [low, high, interval.low, interval.high, test.pvalue])
        assert math.isclose(result["difference"], (losses - full).mean())
        assert math.isclose(result["perplexity"], math.exp(losses.mean()))
    assert row(frame, "full")["reference"]
    assert row(frame, "full")["difference"] is None


def test_the_best_is_first_whatever_the_order_of_folders(toy):
    toy.add_points(full=[3.0, 3.1, 3.2], worse=[4.0, 4.1, 4.2], better=[2.0, 2.1, 2.2])
    folder = load_study(toy.path)
    frame = rank_points(folder.runs, folder.events, folder.study)
    assert frame.select("point", "rank").rows() == [("better", 1), ("full", 2), ("worse", 3)]
    assert frame["rank_low"].to_list() == frame["rank_high"].to_list() == [1, 2, 3]
    assert frame.columns == names("ranking")
    study = {**folder.study, "chosen": dict(reversed(folder.study["chosen"].items()))}
    shuffled = rank_points(folder.runs.reverse(), folder.events.reverse(), study)
    close = pl.selectors.float().round(12)
    assert shuffled.with_columns(close).equals(frame.with_columns(close))


def test_differences_are_paired_by_seed_not_by_position(toy):
    toy.add_point("full", [1.0, 1.013, 2.0, 3.0])
    runs = toy.add_point("gate", [1.5, 1.513, 2.504, 3.5])
    toy.study_json["chosen"]["gate"]["runs"] = runs[::-1]
    result = row(rank(toy), "gate")
    assert math.isclose(result["difference"], 0.501)
    assert result["p"] < 1e-5


def test_one_seed_has_no_interval(toy):
    toy.add_points(full=[3.0, 3.1], once=[2.9])
    result = row(rank(toy), "once")
    intervals = ("low", "high", "difference_low", "difference_high", "rank_low", "rank_high")
    assert [result[name] for name in (*intervals, "p", "p_raw")] == [None] * 8
    assert (result["loss"], result["rank"], result["runs"]) == (2.9, 1, 1)
    assert math.isclose(result["difference"], -0.15)  # of the means


def test_kinds_of_score_and_data_sets_are_ranked_apart(toy):
    toy.add_point("vae", [1.0, 1.1, 1.2], score="bound")
    toy.add_points(full=[3.0, 3.1, 3.2], gate=[3.5, 3.6, 3.8])
    toy.add_point("other", [0.5, 0.6, 0.7], fingerprint="beef")
    frame = rank(toy)
    assert frame["point"].to_list() == ["other", "full", "gate", "vae"]
    assert frame["rank"].to_list() == [1, 1, 2, 1]
    assert [row(frame, p)["difference"] for p in ("vae", "other")] == [None, None]
    gate = row(frame, "gate")
    assert gate["p"] == gate["p_raw"]  # one comparison in its table
    assert (gate["rank_low"], gate["rank_high"]) == (2, 2)


def test_the_metric_selects_the_loss_and_the_floor(toy):
    floor = {"token": 2.5, "sentence": 1.5}
    toy.add_point("full", [3.0, 3.2], floor=floor, sentence=1.9)
    toy.add_point("gate", [3.1, 3.3], floor=floor, sentence=1.8)
    token, sentence = rank(toy), rank(toy, metric="sentence")
    assert token["point"].to_list() == ["full", "gate"]
    assert sentence["point"].to_list() == ["gate", "full"]
    assert math.isclose(row(token, "full")["gap"], 0.6)
    assert math.isclose(row(sentence, "full")["gap"], 0.4)
    assert row(rank(toy), "full")["metric"] == "token"


def test_at_ranks_by_the_validation_loss_of_an_epoch(toy):
    toy.add_points(full=[3.0, 3.2], wild=[2.0, None])
    frame = rank(toy, at=2)
    assert math.isclose(row(frame, "full")["loss"], 3.2)  # 0.1 above the last epoch
    assert (row(frame, "full")["split"], row(frame, "full")["epoch"]) == ("validation", 2)
    assert math.isclose(row(rank(toy, at=2, metric="sentence"), "full")["loss"], 1.6)
    assert row(frame, "wild")["runs"] == 1
    with pytest.raises(UserError, match="validation loss at epoch 7; available epochs: 1 to 3"):
        rank(toy, at=7)


def test_no_reference_gives_no_differences_and_an_overflow_no_perplexity(toy):
    toy.add_point("gate", [800.0, 801.0])
    result = row(rank(toy), "gate")
    assert (result["difference"], result["p"], result["rank"]) == (None, None, 1)
    assert result["perplexity"] is None
