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
from tests.cases import cases
from tests.lab.analysis.toy_study import change_lines, rank, row

# Three points with five seeds each.
FULL, GATE, CARRY = np.random.default_rng(0).normal(3, 0.1, (3, 5))
LOSSES = {"full": FULL, "gate": GATE, "carry": CARRY}
OTHERS = ("gate", "carry")


@pytest.fixture
def three(toy):
    """The ranking of three points with five seeds each."""
    for name, losses in LOSSES.items():
        toy.add_point(name, losses.tolist())
    return rank(toy)


def welch(name):
    return stats.ttest_ind(LOSSES[name], FULL, equal_var=False)


@pytest.mark.parametrize("name", OTHERS)
def test_the_interval_of_a_loss_is_scipys(three, name):
    losses = LOSSES[name]
    expected = stats.t.interval(0.95, 4, loc=losses.mean(), scale=stats.sem(losses))
    found = row(three, name)
    assert (found["low"], found["high"]) == pytest.approx(expected)
    assert found["perplexity"] == pytest.approx(math.exp(losses.mean()))


@pytest.mark.parametrize("name", OTHERS)
def test_a_difference_is_scipys(three, name):
    test = welch(name)
    interval = test.confidence_interval(0.95)
    found = row(three, name)
    assert found["difference"] == pytest.approx(LOSSES[name].mean() - FULL.mean())
    assert found["difference_low"] == pytest.approx(interval.low)
    assert found["difference_high"] == pytest.approx(interval.high)
    assert found["p_raw"] == pytest.approx(test.pvalue)


def test_the_p_values_are_adjusted_for_two_comparisons(three):
    low, high = sorted(welch(name).pvalue for name in OTHERS)
    # Holm: the smaller p counts twice, and the larger one is not below it.
    least = min(1, 2 * low)
    assert sorted(three["p"].drop_nulls()) == pytest.approx([least, max(least, high)])


def test_the_reference_has_no_difference(three):
    found = row(three, "full")
    assert found["reference"]
    assert found["difference"] is None


@pytest.fixture
def apart(toy):
    """Points whose order in the store is none of the ranking."""
    toy.add_points(
        """
        full:   3.0  3.1  3.2
        worse:  4.0  4.1  4.2
        better: 2.0  2.1  2.2
        """
    )
    return toy


def test_the_best_is_first(apart):
    frame = rank(apart)
    assert frame["point"].to_list() == ["better", "full", "worse"]
    for name in ("rank", "rank_low", "rank_high"):
        assert frame[name].to_list() == [1, 2, 3]


def test_a_ranking_has_the_declared_columns(apart):
    assert rank(apart).columns == names()


def test_the_order_of_folders_does_not_matter(apart):
    folder = load_study(apart.path)
    chosen = dict(reversed(folder.study["chosen"].items()))
    study = folder.study | {"chosen": chosen}
    shuffled = rank_points(folder.runs.reverse(), folder.events.reverse(), study)
    close = pl.selectors.float().round(12)
    assert shuffled.with_columns(close).equals(rank(apart).with_columns(close))


@pytest.fixture
def by_seed(toy):
    """A point whose differences hardly vary; its runs are named in the reverse order."""
    toy.add_points("full: 1.0 1.013 2.0 3.0")
    runs = toy.add_point("gate", [1.5, 1.513, 2.504, 3.5])
    toy.study_json["chosen"]["gate"]["runs"] = runs[::-1]
    return toy


def test_differences_are_paired_by_seed_not_by_position(by_seed):
    found = row(rank(by_seed), "gate")
    assert found["difference"] == pytest.approx(0.501)
    # In the order of the runs, the differences vary by nats.
    assert found["p"] < 1e-5


def test_a_seed_without_a_pair_widens_the_interval_of_the_rank(by_seed):
    for name, second in (("a", 1.213), ("b", 1.214), ("c", 1.215)):
        by_seed.add_point(name, [1.2, second, 2.2, 3.2])
    # Only the reference has a fifth seed.
    run = by_seed.add_run("full", 5, 9.0, stage="confirm")
    by_seed.study_json["chosen"]["full"]["runs"].append(run)
    found = row(rank(by_seed), "full")
    assert found["rank_low"] == 1
    assert found["rank"] == found["rank_high"] == 5


def test_one_seed_has_no_interval(toy):
    toy.add_points(
        """
        full: 3.0  3.1
        once: 2.9
        """
    )
    found = row(rank(toy), "once")
    intervals = ("low", "high", "difference_low", "difference_high", "rank_low", "rank_high")
    for name in (*intervals, "p", "p_raw"):
        assert found[name] is None
    assert found["loss"] == 2.9
    assert found["rank"] == found["runs"] == 1
    assert found["difference"] == pytest.approx(-0.15)  # of the means


@pytest.fixture
def of_three_kinds(toy):
    """The ranking of two points, a bound, and a point of other data."""
    toy.add_points("vae: 1.0 1.1 1.2", score="bound")
    toy.add_points(
        """
        full: 3.0  3.1  3.2
        gate: 3.5  3.6  3.8
        """
    )
    toy.add_points("other: 0.5 0.6 0.7", fingerprint="beef")
    return rank(toy)


def test_kinds_of_score_and_data_sets_are_ranked_apart(of_three_kinds):
    assert of_three_kinds["point"].to_list() == ["other", "full", "gate", "vae"]
    assert of_three_kinds["rank"].to_list() == [1, 1, 2, 1]


@pytest.mark.parametrize("point", ["vae", "other"])
def test_a_point_beside_the_table_of_the_reference_has_no_difference(of_three_kinds, point):
    assert row(of_three_kinds, point)["difference"] is None


def test_only_the_contrasts_of_its_table_count_for_a_point(of_three_kinds):
    gate = row(of_three_kinds, "gate")
    assert gate["p"] == gate["p_raw"]
    assert gate["rank_low"] == gate["rank_high"] == 2


@pytest.fixture
def of_two_metrics(toy):
    """Two points, of which each is the better one by a metric."""
    floor = {"token": 2.5, "sentence": 1.5}
    toy.add_points("full: 3.0 3.2", floor=floor, sentence=1.9)
    toy.add_points("gate: 3.1 3.3", floor=floor, sentence=1.8)
    return toy


def test_the_loss_is_that_of_tokens(of_two_metrics):
    frame = rank(of_two_metrics)
    found = row(frame, "full")
    assert frame["point"].to_list() == ["full", "gate"]
    assert found["metric"] == "token"
    assert found["gap"] == pytest.approx(0.6)


def test_the_metric_selects_the_loss_and_the_floor(of_two_metrics):
    frame = rank(of_two_metrics, metric="sentence")
    found = row(frame, "full")
    assert frame["point"].to_list() == ["gate", "full"]
    assert found["gap"] == pytest.approx(0.4)
    assert found["perplexity"] is None


def test_without_a_reference_there_are_no_differences(toy):
    toy.add_points("gate: 3.0 3.1")
    found = row(rank(toy), "gate")
    assert found["difference"] is None
    assert found["p"] is None
    assert found["rank"] == 1


def test_an_overflow_is_no_perplexity(toy):
    # exp(800) is beyond the largest float, about exp(709).
    toy.add_points("gate: 800.0 801.0")
    assert row(rank(toy), "gate")["perplexity"] is None


@pytest.fixture
def diverging(toy):
    toy.add_points(
        """
        full:  3.0  3.1  3.2
        wild:  2.0  -    2.2
        worse: 1.9  -    -
        worst: 9.0  9.1  9.2
        none:  -    -    -
        """
    )
    return toy


def test_a_diverged_confirm_run_is_counted(diverging):
    found = row(rank(diverging), "wild")
    assert found["loss"] == pytest.approx(2.1)
    assert found["runs"] == 2
    assert found["confirm"] == 3
    assert found["confirm_diverged"] == found["diverged"] == 1
    assert found["missing"] == 0
    assert found["marks"] == []


def test_a_run_that_diverges_after_its_test_is_counted(diverging):
    end = {"event": "end", "epoch": 3, "status": "diverged", "reason": ""}
    RunFolder(diverging.path / "wild-confirm-1").append(end)
    found = row(rank(diverging), "wild")
    # That of the only run that has not diverged.
    assert found["loss"] == 2.2
    assert found["confirm_diverged"] == 2
    assert found["low"] is None


def test_points_are_ranked_by_the_share_of_diverged_runs_first(diverging):
    frame = rank(diverging)
    # None, none, a third, two thirds and all of the runs diverged.
    assert frame["point"].to_list() == ["full", "worst", "wild", "worse", "none"]
    assert frame["rank"].to_list() == [1, 2, 3, 4, 5]
    assert row(frame, "none")["loss"] is None
    full = row(frame, "full")
    assert full["rank_low"] == 1
    assert full["rank_high"] == 4


def test_a_run_counts_after_its_test_even_if_it_has_not_ended(toy):
    runs = toy.add_point("full", [3.0, 3.2])
    path = toy.records_path(runs[0])
    # Without the line of its end.
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert math.isclose(row(rank(toy), "full")["loss"], 3.1)


def test_tune_runs_are_counted_and_never_averaged(toy):
    toy.add_points("full: 3.0 3.1")
    for seed, status in enumerate(["pruned", "pruned", "failed", "finished"]):
        toy.add_run("full", 100 + seed, 1.0, status=status, test=True)
    toy.add_run("full", 200, None)
    result = row(rank(toy), "full")
    counts = [result[name] for name in ("tune", "pruned", "diverged", "failed", "runs")]
    assert counts == [5, 2, 1, 1, 2]
    assert math.isclose(result["loss"], 3.05)


def test_a_missing_run_is_marked(toy):
    toy.add_points(
        """
        full: 3.0  3.1
        gate: 3.2  3.3
        """
    )
    toy.study_json["chosen"]["gate"]["runs"].append("deleted")
    found = row(rank(toy), "gate")
    assert found["marks"] == ["missing"]
    assert found["missing"] == 1


def test_an_unconfirmed_point_is_marked_and_has_no_rank(toy):
    toy.add_points("full: 3.0 3.1")
    toy.add_run("later", 0, 3.0)
    toy.add_unconfirmed("later")
    found = row(rank(toy), "later")
    assert found["marks"] == ["unconfirmed"]
    assert found["rank"] is None


EXACT = 3.10031416
"""With all decimals; rounded numbers are not exact."""


@pytest.fixture
def fixed(toy):
    """The ranking of points whose loss is the same for all seeds, and of two others."""
    toy.add_points(
        f"""
        full:   {EXACT}  {EXACT}  {EXACT}
        counts: 3.2  3.2  3.2
        same:   {EXACT}  {EXACT}  {EXACT}
        net:    2.9  3.0  3.2
        once:   3.3
        """
    )
    return rank(toy)


@pytest.mark.parametrize(("point", "difference"), [("counts", 3.2 - EXACT), ("same", 0.0)])
def test_a_loss_that_is_the_same_for_all_seeds_has_no_interval(fixed, point, difference):
    found = row(fixed, point)
    assert found["loss"] == found["low"] == found["high"]
    assert found["difference"] == pytest.approx(difference)


def test_a_loss_that_is_that_of_the_reference_has_p_1(fixed):
    assert row(fixed, "same")["p"] == 1.0


def test_a_loss_that_is_the_same_for_all_seeds_is_marked(fixed):
    marked = fixed.filter(pl.col("marks").list.contains("fixed"))
    assert set(marked["point"]) == {"full", "counts", "same"}


def test_a_study_without_a_confirmed_point_is_not_ranked(toy):
    with pytest.raises(UserError, match="'toy' has no confirmed point yet; run its sweep again"):
        rank(toy)


def test_a_study_without_a_test_is_not_ranked(toy):
    run = toy.add_run("full", 1, 3.0, stage="confirm", test=False)
    toy.study_json["chosen"]["full"] = {"setting": {}, "runs": [run], "edge": []}
    toy.add_unconfirmed("full")
    with pytest.raises(UserError, match=r"'toy' has no test results yet;"):
        rank(toy)


def add_test(toy, run, epoch, loss):
    event = {"event": "test", "epoch": epoch, "token": loss, "sentence": loss}
    RunFolder(toy.path / run).append(event)


@pytest.fixture
def of_six_epochs(toy):
    """Points with tests at three epochs; the study has six, and one run is not that far."""
    toy.study_json["budget"]["epochs"] = 6
    toy.add_points(
        """
        full: 3.0  3.2
        gate: 3.1  3.3
        """
    )
    add_test(toy, "full-confirm-1", 6, 2.0)
    add_test(toy, "gate-confirm-1", 6, 2.2)
    add_test(toy, "gate-confirm-2", 6, 2.4)
    return toy


def test_only_tests_at_the_studys_budget_are_ranked(of_six_epochs):
    frame = rank(of_six_epochs)
    full = row(frame, "full")
    assert full["epoch"] == 6
    assert full["loss"] == 2.0
    assert full["marks"] == ["missing"]
    assert row(frame, "gate")["loss"] == pytest.approx(2.3)


def test_a_run_of_a_setting_that_is_not_chosen_does_not_count(of_six_epochs):
    stale = of_six_epochs.add_run("full", 9, 1.0, stage="confirm")
    add_test(of_six_epochs, stale, 6, 1.0)
    # Beyond the budget.
    add_test(of_six_epochs, stale, 9, 1.0)
    assert row(rank(of_six_epochs), "full")["loss"] == 2.0


def test_events_after_a_smaller_budget_do_not_count(toy):
    run, _ = toy.add_point("full", [3.0, 3.2])
    add_test(toy, run, 6, 2.0)
    RunFolder(toy.path / run).append({"event": "end", "epoch": 6, "status": "diverged"})
    found = row(rank(toy), "full")
    assert found["epoch"] == 3
    assert found["marks"] == []
    assert found["loss"] == pytest.approx(3.1)


def test_a_budget_below_every_test_is_refused(toy):
    toy.add_points("full: 3.0 3.2")
    tested = toy.study_json["budget"]["epochs"]
    toy.study_json["budget"]["epochs"] = tested - 1
    said = rf"test results are at epochs {tested} only; .* --epochs {tested}$"
    with pytest.raises(UserError, match=said):
        rank(toy)


@cases("lab/analysis/cases.toml", "impossible")
def test_what_a_test_split_explains(case):
    found = is_impossible(
        case["loss"], case.get("floor"), vocab=251, sequences=case.get("sequences")
    )
    assert found == case["expected"]


def add_accuracies(toy, name, shares, **config):
    """Add a point with these test accuracies."""
    # What the losses are does not matter here.
    losses = np.resize([0.5, 0.6], len(shares)).tolist()
    runs = toy.add_point(name, losses, **config)
    for run, share in zip(runs, shares, strict=True):
        path = toy.records_path(run)
        change_lines(path, "test", accuracy=share, sequence_accuracy=share / 4)


@pytest.fixture
def accurate(toy):
    add_accuracies(toy, "full", [0.5, 0.9], ceiling=0.95)
    add_accuracies(toy, "gate", [1.0, 1.0], ceiling=0.95)
    return toy


def test_accuracies_are_means_over_seeds_with_the_worst_and_the_best(accurate):
    found = row(rank(accurate), "full")
    names = ("accuracy", "accuracy_low", "accuracy_high", "sequence_accuracy", "ceiling")
    shown = [found[name] for name in names]
    assert shown == pytest.approx([0.7, 0.5, 0.9, 0.175, 0.95])


@pytest.mark.parametrize("said", ["70.0 % (50.0–90.0)", "| 100.0 % |", "no model can exceed 95.0%"])
def test_the_tables_show_accuracies_and_the_ceiling(accurate, said):
    assert said in render(study_ranking(accurate.write()), "md")


@pytest.fixture
def solving(toy):
    """Points of which all, half and no seeds solve a task."""
    add_accuracies(toy, "full", [1.0] * 9, ceiling=1.0)
    # A task is solved from 95 % on.
    add_accuracies(toy, "half", [1.0, 0.96, 0.94, 0.5], ceiling=1.0)
    add_accuracies(toy, "none", [0.5] * 5, ceiling=1.0)
    return toy


def test_the_share_of_seeds_that_solve_a_task_is_ranked_before_the_loss(solving):
    frame = rank(solving)
    assert frame["solved"].to_list() == [9, 2, 0]
    assert frame["rank"].to_list() == [1, 2, 3]


def test_a_point_that_never_solves_a_task_is_worse(solving):
    frame = rank(solving)
    assert row(frame, "none")["verdict"] == "worse"
    assert verdict_lines(frame)[0].endswith("cut none (solves 0 of 5 seeds)")


def test_the_tables_count_the_seeds_that_solve_a_task(solving):
    assert "| 2/4 |" in render(study_ranking(solving.path), "md")


def test_a_study_names_the_loss_that_solves_its_task(toy):
    toy.add_points(
        """
        full:  2.0  2.1  3.5
        other: 2.0  -    2.2
        """
    )
    # A seed solves the task with a loss of at most 2.1.
    toy.study_json["asked"] = {"solved": 2.1}
    frame = rank(toy)
    full = row(frame, "full")
    # The mean of the two seeds that solve it.
    assert full["loss"] == pytest.approx(2.05)
    assert full["solved"] == 2
    assert row(frame, "other")["solved"] == 1


KN5 = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney", "alpha": 0.1}
# A model of counts depends on no seed.
COUNT = [3.947, 3.947, 3.947]


@pytest.fixture
def compared(toy):
    toy.add_points(
        """
        full:  3.80  3.81  3.82
        near:  3.90  3.94  4.02
        worse: 4.10  4.11  4.12
        worst: 4.00  4.01  4.03
        """
    )
    toy.add_point("count", COUNT, model=KN5)
    return toy


def outcomes(toy):
    """Return the outcome of each point that is compared with the 5-gram."""
    found = rank(toy).drop_nulls("kn5")
    return dict(found.select("point", "kn5").iter_rows())


COMPARED = {"full": "wins", "near": "undecided", "worse": "loses", "worst": "loses"}


def test_a_point_loses_wins_or_is_undecided(compared):
    assert outcomes(compared) == COMPARED


def test_a_point_that_leaks_may_lose_and_does_not_win(compared):
    compared.add_points(
        """
        reads ahead: 1.0  1.01  1.02
        in vain:     5.0  5.01  5.03
        """,
        leaks="time_std",
    )
    assert outcomes(compared) == COMPARED | {"in vain": "loses"}


def test_points_of_other_tables_are_not_compared_with_the_5_gram(compared):
    compared.add_points("vae: 9.0 9.1 9.2", score="bound")
    compared.add_points("elsewhere: 9.0 9.1 9.2", fingerprint="beef")
    assert outcomes(compared) == COMPARED


def test_labels_with_commas_are_quoted():
    assert join_labels(["forget gate, rotary", "rotary"]) == "'forget gate, rotary', rotary"


def test_a_point_that_loses_has_an_interval_above_the_5_gram(compared):
    found = row(rank(compared), "worst")
    assert found["kn5_difference"] == pytest.approx(found["loss"] - COUNT[0])
    assert found["kn5_difference_low"] > 0


def test_the_interval_covers_the_tuning(compared):
    compared.study_json["chosen"]["worst"]["tuning_sd"] = 0.2
    assert outcomes(compared) == COMPARED | {"worst": "undecided"}


def test_one_seed_is_not_decided(compared):
    compared.add_points("once: 5.0")
    # A single seed has no interval.
    found = row(rank(compared), "once")
    assert found["kn5"] == "one seed"
    assert found["kn5_difference_low"] is None
    assert found["kn5_difference"] == pytest.approx(5.0 - 3.947)


@pytest.fixture(params=[{"order": 3}, {"smoothing": "add_alpha"}], ids=["order", "smoothing"])
def with_another_count(request, toy):
    """A point, and a model of counts that is no 5-gram."""
    toy.add_points("full: 4.1 4.2 4.3")
    toy.add_points("other: 3.0 3.0 3.0", model=KN5 | request.param)
    return toy


def test_only_the_5_gram_is_the_baseline(with_another_count):
    assert outcomes(with_another_count) == {}


def test_other_models_of_counts_are_not_compared_with_the_5_gram(with_another_count):
    with_another_count.add_point("count", COUNT, model=KN5)
    assert outcomes(with_another_count) == {"full": "loses"}


def test_the_baseline_of_a_text_is_the_n_gram_of_the_best_order(toy):
    toy.add_points("near: 3.90 3.94 4.02")
    toy.add_point("count", COUNT, model=KN5)
    toy.add_points("Kneser-Ney n-gram: 3.5 3.5 3.5", model=KN5 | {"order": 0})
    text = " ".join(study_ranking(toy.path).warnings)
    assert "cut near loses to the Kneser-Ney n-gram (3.500)" in text
    assert outcomes(toy) == {"near": "loses"}
