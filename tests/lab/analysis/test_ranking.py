"""The ranking: numbers, order, options; what it counts, marks and refuses; the 5-gram."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.columns import names
from lmzoo.lab.analysis.formatting import join_labels
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import render
from lmzoo.lab.analysis.verdict_lines import verdict_lines
from lmzoo.lab.statistics.intervals import is_impossible
from lmzoo.lab.store.records import RunFolder
from tests.lab.analysis.toy_study import change_lines, rank, row


def test_numbers_equal_scipys(toy):
    full, gate, carry = np.random.default_rng(0).normal(3, 0.1, (3, 5))
    toy.add_points(full=full.tolist(), gate=gate.tolist(), carry=carry.tolist())
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
    assert (row(frame, "full")["reference"], row(frame, "full")["difference"]) == (True, None)


def test_the_best_is_first_whatever_the_order_of_folders(toy):
    toy.add_points(full=[3.0, 3.1, 3.2], worse=[4.0, 4.1, 4.2], better=[2.0, 2.1, 2.2])
    folder = load_study(toy.path)
    frame = rank_points(folder.runs, folder.events, folder.study)
    assert frame.select("point", "rank").rows() == [("better", 1), ("full", 2), ("worse", 3)]
    assert frame["rank_low"].to_list() == frame["rank_high"].to_list() == [1, 2, 3]
    assert frame.columns == names()
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
    for shift, name in enumerate("abc"):
        toy.add_point(name, [1.2, 1.213 + shift / 1000, 2.2, 3.2])
    toy.add_run("full", 5, 9.0, stage="confirm")
    toy.study_json["chosen"]["full"]["runs"].append("full-confirm-5")
    full = row(rank(toy), "full")
    assert (full["rank_low"], full["rank"], full["rank_high"]) == (1, 5, 5)


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
    assert (row(token, "full")["metric"], row(sentence, "full")["perplexity"]) == ("token", None)


def test_no_reference_gives_no_differences_and_an_overflow_no_perplexity(toy):
    toy.add_point("gate", [800.0, 801.0])
    result = row(rank(toy), "gate")
    shown = [result[name] for name in ("difference", "p", "rank", "perplexity")]
    assert shown == [None, None, 1, None]


def test_a_diverged_confirm_run_is_counted(toy):
    toy.add_points(full=[3.0, 3.1, 3.2], wild=[2.0, None, 2.2])
    runs = toy.study_json["chosen"]["wild"]["runs"]
    result = row(rank(toy), "wild")
    assert math.isclose(result["loss"], 2.1)
    assert (result["runs"], result["confirm"], result["confirm_diverged"]) == (2, 3, 1)
    assert (result["diverged"], result["missing"], result["marks"]) == (1, 0, [])
    end = {"event": "end", "epoch": toy.epochs, "status": "diverged", "reason": ""}
    RunFolder(toy.path / runs[0]).append(end)  # after its test
    result = row(rank(toy), "wild")
    assert (result["loss"], result["confirm_diverged"], result["low"]) == (2.2, 2, None)


def test_points_are_ranked_by_the_share_of_diverged_runs_first(toy):
    toy.add_points(full=[3.0, 3.1, 3.2], wild=[2.0, None, 2.2], worse=[1.9, None, None])
    toy.add_points(worst=[9.0, 9.1, 9.2], none=[None, None, None])
    frame = rank(toy)
    assert frame["point"].to_list() == ["full", "worst", "wild", "worse", "none"]
    assert frame["rank"].to_list() == [1, 2, 3, 4, 5]
    assert math.isclose(row(frame, "wild")["loss"], 2.1)
    assert row(frame, "none")["loss"] is None
    assert [row(frame, "full")[end] for end in ("rank_low", "rank_high")] == [1, 4]


def test_a_run_counts_after_its_test_even_if_it_has_not_ended(toy):
    runs = toy.add_point("full", [3.0, 3.2])
    path = toy.records_path(runs[0])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert math.isclose(row(rank(toy), "full")["loss"], 3.1)


def test_tune_runs_are_counted_and_never_averaged(toy):
    toy.add_point("full", [3.0, 3.1])
    for seed, status in enumerate(["pruned", "pruned", "failed", "finished"]):
        toy.add_run("full", 100 + seed, 1.0, status=status, test=True)
    toy.add_run("full", 200, None)
    result = row(rank(toy), "full")
    counts = [result[name] for name in ("tune", "pruned", "diverged", "failed", "runs")]
    assert counts == [5, 2, 1, 1, 2]
    assert math.isclose(result["loss"], 3.05)


def test_missing_runs_and_unconfirmed_points_are_marked(toy):
    toy.add_points(full=[3.0, 3.1], gate=[3.2, 3.3])
    toy.study_json["chosen"]["gate"]["runs"].append("deleted")
    toy.add_run("later", 0, 3.0)
    toy.study_json["points"].append({"id": "later", "label": "later", "aliases": []})
    frame = rank(toy)
    assert (row(frame, "gate")["marks"], row(frame, "gate")["missing"]) == (["missing"], 1)
    assert (row(frame, "later")["marks"], row(frame, "later")["rank"]) == (["unconfirmed"], None)


def test_a_loss_that_is_the_same_for_all_seeds_has_no_interval(toy):
    exact = 3.10031416  # with all decimals; rounded numbers are not exact
    toy.add_points(full=[exact] * 3, counts=[3.2, 3.2, 3.2], same=[exact] * 3, net=[2.9, 3.0, 3.2])
    toy.add_point("once", [3.3])
    frame = rank(toy)
    for name, difference in (("counts", 3.2 - exact), ("same", 0.0)):
        result = row(frame, name)
        assert result["loss"] == result["low"] == result["high"]
        assert result["difference"] == pytest.approx(difference)
    assert row(frame, "same")["p"] == 1.0
    marks = dict(frame.select("point", "marks").iter_rows())
    fixed = ["fixed"]
    assert marks == {"full": fixed, "counts": fixed, "same": fixed, "net": [], "once": []}


def test_errors_name_the_next_step(toy):
    with pytest.raises(UserError, match="'toy' has no confirmed point yet; run its sweep again"):
        rank(toy)
    toy.add_run("full", 1, 3.0, stage="confirm", test=False)
    toy.study_json["chosen"]["full"] = {"setting": {}, "runs": ["full-confirm-1"], "edge": []}
    toy.study_json["points"].append({"id": "full", "label": "full", "aliases": []})
    with pytest.raises(UserError, match=r"'toy' has no test results yet;"):
        rank(toy)


def test_only_tests_at_the_studys_budget_are_ranked(toy):
    toy.study_json["budget"]["epochs"] = 6
    toy.add_points(full=[3.0, 3.2], gate=[3.1, 3.3])
    for run, loss in (("full-confirm-1", 2.0), ("gate-confirm-1", 2.2), ("gate-confirm-2", 2.4)):
        test = {"event": "test", "epoch": 6, "token": loss, "sentence": loss}
        RunFolder(toy.path / run).append(test)
    stale = toy.add_run("full", 9, 1.0, stage="confirm")  # of a setting that is not chosen
    RunFolder(toy.path / stale).append({"event": "test", "epoch": 9, "token": 1.0})
    frame = rank(toy)
    assert row(frame, "full")["epoch"] == 6
    assert (row(frame, "full")["loss"], row(frame, "full")["marks"]) == (2.0, ["missing"])
    assert math.isclose(row(frame, "gate")["loss"], 2.3)


def test_events_after_a_smaller_budget_do_not_count(toy):
    toy.add_point("full", [3.0, 3.2])
    epoch = toy.study_json["budget"]["epochs"]
    for event in ({"event": "test", "epoch": epoch + 3, "token": 2.0, "sentence": 2.0},
                  {"event": "end", "epoch": epoch + 3, "status": "diverged"}):  # fmt: skip
        RunFolder(toy.path / "full-confirm-1").append(event)
    frame = rank(toy)
    assert (row(frame, "full")["epoch"], row(frame, "full")["marks"]) == (epoch, [])
    assert math.isclose(row(frame, "full")["loss"], 3.1)


def test_a_budget_below_every_test_is_refused(toy):
    toy.add_point("full", [3.0, 3.2])
    tested = toy.study_json["budget"]["epochs"]
    toy.study_json["budget"]["epochs"] = tested - 1
    said = rf"test results are at epochs {tested} only; .* --epochs {tested}$"
    with pytest.raises(UserError, match=said):
        rank(toy)


@pytest.mark.parametrize(
    ("loss", "floor", "vocab", "sequences", "expected"),
    [
        (1.059, 1.487, 251, 1000, True),  # a leak of chunks of 16 tokens, on captions
        (1.30, 1.487, 251, 1000, False),  # a test split of easy sentences would explain it
        (1.30, 1.487, 251, 10_000, True),
        (1.5, 1.487, 251, 10_000, False),
        (0.5, None, 251, 1000, False),
        (0.5, 1.487, 251, None, False),
    ],
)
def test_what_a_test_split_explains(loss, floor, vocab, sequences, expected):
    assert is_impossible(loss, floor, vocab, sequences) == expected


def add_point(toy, name, shares, **config):
    """Add a point with these test accuracies."""
    losses = np.resize([0.5, 0.6], len(shares)).tolist()
    runs = toy.add_point(name, losses, **config)
    for run, share in zip(runs, shares, strict=True):
        path = toy.records_path(run)
        change_lines(path, "test", accuracy=share, sequence_accuracy=share / 4)


def test_accuracies_are_means_over_seeds_with_the_worst_and_the_best(toy):
    add_point(toy, "full", [0.5, 0.9], ceiling=0.95)
    found = row(rank(toy), "full")
    names = ("accuracy", "accuracy_low", "accuracy_high", "sequence_accuracy", "ceiling")
    assert [found[name] for name in names] == pytest.approx([0.7, 0.5, 0.9, 0.175, 0.95])


def test_the_tables_show_accuracies_and_the_ceiling(toy):
    add_point(toy, "full", [0.5, 0.9], ceiling=0.95)
    add_point(toy, "gate", [1.0, 1.0], ceiling=0.95)
    toy.write()
    text = render(study_ranking(toy.path), "md")
    for said in ("70.0 % (50.0–90.0)", "| 100.0 % |", "no model can exceed 95.0%"):
        assert said in text


def test_the_share_of_seeds_that_solve_a_task_is_ranked_before_the_loss(toy):
    add_point(toy, "full", [1.0] * 9, ceiling=1.0)
    add_point(toy, "half", [1.0, 0.96, 0.94, 0.5], ceiling=1.0)
    add_point(toy, "none", [0.5] * 5, ceiling=1.0)
    frame = rank(toy)
    assert frame["solved"].to_list() == [9, 2, 0]
    assert frame["rank"].to_list() == [1, 2, 3]
    assert row(frame, "none")["verdict"] == "worse"
    assert verdict_lines(frame)[0].endswith("cut none (solves 0 of 5 seeds)")
    assert "| 2/4 |" in render(study_ranking(toy.path), "md")


def test_a_study_names_the_loss_that_solves_its_task(toy):
    toy.add_points(full=[2.0, 2.1, 3.5], other=[2.0, None, 2.2])
    toy.study_json["asked"] = {"solved": 2.1}
    frame = rank(toy)
    assert row(frame, "full")["loss"] == pytest.approx(2.05)
    assert (row(frame, "full")["solved"], row(frame, "other")["solved"]) == (2, 1)


KN5 = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney", "alpha": 0.1}
COUNT = [3.947, 3.947, 3.947]


@pytest.fixture
def compared(toy):
    toy.add_points(full=[3.80, 3.81, 3.82], near=[3.90, 3.94, 4.02], worse=[4.10, 4.11, 4.12])
    toy.add_point("worst", [4.00, 4.01, 4.03])
    toy.add_point("count", COUNT, model=KN5)
    return toy


def _outcomes(frame):
    return dict(frame.select("point", "kn5").iter_rows())


def test_a_point_loses_wins_or_is_undecided_and_one_that_leaks_does_not_win(compared):
    compared.add_point("reads ahead", [1.0, 1.01, 1.02], leaks="time_std")
    compared.add_point("in vain", [5.0, 5.01, 5.03], leaks="time_std")
    compared.add_point("vae", [9.0, 9.1, 9.2], score="bound")
    compared.add_point("elsewhere", [9.0, 9.1, 9.2], fingerprint="beef")
    outcomes = _outcomes(rank(compared))
    expected = {"full": "wins", "near": "undecided", "worse": "loses", "worst": "loses"}
    expected |= dict.fromkeys(["count", "reads ahead", "vae", "elsewhere"])
    assert outcomes == {**expected, "in vain": "loses"}


def test_labels_with_commas_are_quoted():
    assert join_labels(["forget gate, rotary", "rotary"]) == "'forget gate, rotary', rotary"


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


@pytest.mark.parametrize("other", [{"order": 3}, {"smoothing": "add_alpha"}])
def test_only_the_5_gram_is_the_baseline_and_count_models_are_not_compared(toy, other):
    toy.add_point("full", [4.1, 4.2, 4.3])
    toy.add_point("other", [3.0, 3.0, 3.0], model={**KN5, **other})
    assert set(rank(toy)["kn5"]) == {None}
    toy.add_point("count", COUNT, model=KN5)
    assert _outcomes(rank(toy)) == {"full": "loses", "other": None, "count": None}


def test_the_baseline_of_a_text_is_the_n_gram_of_the_best_order(toy):
    toy.add_point("near", [3.90, 3.94, 4.02])
    toy.add_point("count", COUNT, model=KN5)
    toy.add_point("Kneser-Ney n-gram", [3.5] * 3, model={**KN5, "order": 0})
    text = " ".join(study_ranking(toy.path).warnings)
    assert "cut near loses to the Kneser-Ney n-gram (3.500)" in text
    assert _outcomes(rank(toy)) == {"near": "loses", "count": None, "Kneser-Ney n-gram": None}
