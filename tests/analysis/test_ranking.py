"""A ranking is a pure function of records: its numbers, its order, its options."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from lmzoo.analysis.load import load
from lmzoo.analysis.ranking import COLUMNS, ranking
from lmzoo.errors import UserError
from tests.analysis.synthetic import rank, row


def test_numbers_are_scipys(made):
    full, gate, carry = np.random.default_rng(0).normal(3, 0.1, (3, 5))
    for name, losses in {"full": full, "gate": gate, "carry": carry}.items():
        made.point(name, losses.tolist())
    frame = rank(made)
    tests = {"gate": stats.ttest_rel(gate, full), "carry": stats.ttest_rel(carry, full)}
    low_p, high_p = sorted(test.pvalue for test in tests.values())
    adjusted = [min(1, 2 * low_p), max(min(1, 2 * low_p), high_p)]
    assert np.allclose(sorted(frame["p"].drop_nulls()), adjusted)
    for name, losses in {"gate": gate, "carry": carry}.items():
        found, test = row(frame, name), tests[name]
        between = test.confidence_interval(0.95)
        low, high = stats.t.interval(0.95, 4, loc=losses.mean(), scale=stats.sem(losses))
        ours = [found[c] for c in ("low", "high", "difference_low", "difference_high", "p_raw")]
        assert np.allclose(ours, [low, high, between.low, between.high, test.pvalue])
        assert math.isclose(found["difference"], (losses - full).mean())
        assert math.isclose(found["perplexity"], math.exp(losses.mean()))
    assert row(frame, "full")["reference"]
    assert row(frame, "full")["difference"] is None


def test_the_best_is_first_and_the_order_of_folders_means_nothing(made):
    made.point("full", [3.0, 3.1, 3.2])
    made.point("worse", [4.0, 4.1, 4.2])
    made.point("better", [2.0, 2.1, 2.2])
    folder = load(made.path)
    frame = ranking(folder.runs, folder.events, folder.study)
    assert frame.select("point", "rank").rows() == [("better", 1), ("full", 2), ("worse", 3)]
    assert frame["rank_low"].to_list() == frame["rank_high"].to_list() == [1, 2, 3]
    assert frame.columns == list(COLUMNS)
    study = {**folder.study, "chosen": dict(reversed(folder.study["chosen"].items()))}
    shuffled = ranking(folder.runs.reverse(), folder.events.reverse(), study)
    close = pl.selectors.float().round(12)
    assert shuffled.with_columns(close).equals(frame.with_columns(close))


def test_pairing_is_by_seed_not_by_position(made):
    made.point("full", [1.0, 2.0, 3.0])
    runs = made.point("gate", [1.5, 2.5, 3.503])
    made.study["chosen"]["gate"]["runs"] = runs[::-1]
    found = row(rank(made), "gate")
    assert math.isclose(found["difference"], 0.501)
    assert found["p"] < 1e-5


def test_one_seed_has_no_interval(made):
    made.point("full", [3.0, 3.1])
    made.point("once", [2.9])
    found = row(rank(made), "once")
    silent = (
        "low",
        "high",
        "difference_low",
        "difference_high",
        "p",
        "p_raw",
        "rank_low",
        "rank_high",
    )
    assert [found[name] for name in silent] == [None] * len(silent)
    assert (found["loss"], found["rank"], found["runs"]) == (2.9, 1, 1)
    assert math.isclose(found["difference"], -0.1)


def test_kinds_of_score_and_bodies_of_data_are_never_ranked_together(made):
    made.point("vae", [1.0, 1.1, 1.2], score="bound")
    made.point("full", [3.0, 3.1, 3.2])
    made.point("gate", [3.5, 3.6, 3.8])
    made.point("other", [0.5, 0.6, 0.7], fingerprint="beef")
    frame = rank(made)
    assert frame.select("point", "score", "rank").rows() == [
        ("other", "exact", 1),
        ("full", "exact", 1),
        ("gate", "exact", 2),
        ("vae", "bound", 1),
    ]
    assert [row(frame, p)["difference"] for p in ("vae", "other")] == [None, None]
    gate = row(frame, "gate")
    assert gate["p"] == gate["p_raw"]  # one comparison in its table
    assert (gate["rank_low"], gate["rank_high"]) == (2, 2)


def test_metric_chooses_the_column_and_the_floor(made):
    floor = {"token": 2.5, "sentence": 1.5}
    made.point("full", [3.0, 3.2], floor=floor, sentence=1.9)
    made.point("gate", [3.1, 3.3], floor=floor, sentence=1.8)
    token, sentence = rank(made), rank(made, metric="sentence")
    assert token["point"].to_list() == ["full", "gate"]
    assert sentence["point"].to_list() == ["gate", "full"]
    assert math.isclose(row(token, "full")["gap"], 0.6)
    assert math.isclose(row(sentence, "full")["gap"], 0.4)
    assert row(rank(made), "full")["metric"] == "token"


def test_both_metrics_agree_where_all_lengths_are_equal(made):
    nll = np.random.default_rng(1).normal(60, 2, (3, 4, 9))  # point, seed, sequence; n_b = 20
    for name, seeds in zip(("full", "gate", "carry"), nll, strict=True):
        for seed, sequences in enumerate(seeds):
            loss, sentence = sequences.sum() / 180, (sequences / 20).mean()
            made.run(name, seed, float(loss), stage="confirm", sentence=float(sentence))
        made.study["points"].append({"id": name, "label": name, "aliases": []})
        runs = [f"{name}-confirm-{seed}" for seed in range(4)]
        made.study["chosen"][name] = {"setting": {}, "runs": runs, "edge": []}
    close = pl.selectors.float().round(9)
    token, sentence = (rank(made, metric=m).with_columns(close) for m in ("token", "sentence"))
    assert token.drop("metric").equals(sentence.drop("metric"))


def test_at_ranks_by_validation_at_that_epoch(made):
    made.point("full", [3.0, 3.2])
    made.point("wild", [2.0, None])
    frame = rank(made, at=2)
    assert math.isclose(row(frame, "full")["loss"], 3.2)  # 0.1 above the last epoch
    assert (row(frame, "full")["split"], row(frame, "full")["epoch"]) == ("validation", 2)
    assert math.isclose(row(rank(made, at=2, metric="sentence"), "full")["loss"], 1.6)
    assert row(frame, "wild")["runs"] == 1
    with pytest.raises(UserError, match="validation loss at epoch 7; there is: 1 to 3"):
        rank(made, at=7)


def test_a_reference_that_is_not_there_leaves_no_differences(made):
    made.point("gate", [3.1, 3.3])
    found = row(rank(made), "gate")
    assert (found["difference"], found["p"], found["rank"]) == (None, None, 1)


def test_a_loss_beyond_all_perplexity(made):
    made.point("full", [800.0, 801.0])
    assert row(rank(made), "full")["perplexity"] is None


def test_many_runs_are_each_counted_once(made):
    points, seeds, tunes = 6, 4, 10
    losses = np.random.default_rng(2).normal(3, 0.3, (points, seeds)).round(6)
    made.epochs = made.study["budget"]["epochs"] = 5
    for i in range(points):
        made.point(f"p{i}", losses[i].tolist())
        for tune in range(tunes):
            made.run(f"p{i}", 50 + tune, 1.0, status="pruned" if tune % 2 else "finished")
    made.study["reference"] = "p0"
    frame = rank(made).sort("point")
    assert np.allclose(frame["loss"], losses.mean(1))
    assert np.allclose(frame["difference"][1:], (losses - losses[0]).mean(1)[1:])
    assert frame["rank"].to_list() == stats.rankdata(losses.mean(1), method="min").tolist()
    assert frame["tune"].to_list() == [tunes] * points
    assert frame["pruned"].to_list() == [tunes // 2] * points


def test_the_order_of_rows_never_moves_an_interval_of_ranks(made):
    """Close points on a few seeds: another order of seeds is another bootstrap draw."""
    draws = np.random.default_rng(1).normal(3, 0.05, (12, 5)) + np.arange(12)[:, None] * 0.03
    for i, losses in enumerate(draws):
        made.point("full" if i == 0 else f"p{i}", losses.tolist())
    folder = load(made.path)
    runs, events = folder.runs.collect(), folder.events.collect()
    close = pl.selectors.float().round(12)

    def listed(seed: int) -> dict:
        chosen = {
            point: {**one, "runs": np.random.default_rng(seed).permutation(one["runs"]).tolist()}
            for point, one in folder.study["chosen"].items()
        }
        return {**folder.study, "chosen": chosen}

    found = {
        ranking(
            runs.sample(fraction=1, shuffle=True, seed=seed).lazy(),
            events.sample(fraction=1, shuffle=True, seed=seed).lazy(),
            listed(seed),
        )
        .with_columns(close)
        .write_json()
        for seed in range(8)
    }
    assert len(found) == 1
