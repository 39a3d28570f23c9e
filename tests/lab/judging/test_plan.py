"""Plans: seeds of a t-test of known power, costs, what cannot be decided."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.render import account_line
from lmzoo.lab.judging.account import Question
from lmzoo.lab.judging.plan import plan, plan_report
from lmzoo.lab.judging.verdicts import judgement
from lmzoo.lab.statistics.power import planned_seeds
from tests.cases import cases, rows
from tests.lab.statistics.normal_draws import normal
from tests.user_errors import raises_user_error

RNG = np.random.default_rng
CASES = "lab/judging/cases.toml"
RECORDS = Path("docs/results/records/gru_ablation-captions.parquet")


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("effect", [0.3, 0.7, 1.5])
def test_two_variants_need_the_seeds_of_a_t_test(paired, effect):
    x = normal(0, 2, 5000)
    found = planned_seeds(x, 0, effect, paired=paired)
    seeds = int(found.seeds[1])
    sd = found.sd[1]
    # The power is 80 %, but for the error of 20,000 studies.
    assert simulated_power(effect, sd, seeds, paired=paired) > 0.79
    if seeds > 2:
        assert simulated_power(effect, sd, seeds - 1, paired=paired) < 0.81


def simulated_power(effect: float, sd: float, seeds: int, *, paired: bool) -> float:
    """Return the share of studies whose t-test shows the effect."""
    rng = RNG(1)
    if paired:
        differences = rng.normal(effect, sd, (20_000, seeds))
        p = stats.ttest_1samp(differences, 0, axis=1).pvalue
    else:
        # The deviation is that of a difference of two.
        of_each = sd / np.sqrt(2)
        reference, point = rng.normal(0, of_each, (2, 20_000, seeds))
        p = stats.ttest_ind(reference, point + effect, axis=1).pvalue
    return (p < 0.05).mean()


@pytest.mark.parametrize(("points", "studies"), [(2, 200), (8, 80)])
def test_a_plan_is_too_small_as_often_as_too_large(points, studies):
    """Of pilots with three seeds; the expected variance planned too many seeds more often."""
    too_small = 0
    for pilot in normal(0, studies, points, 3):
        planned = planned_seeds(pilot, 0, 0.7, count=1)
        # The deviation of a difference of two standard normal numbers.
        too_small += planned.sd[1] < np.sqrt(2)
    share = too_small / studies
    assert 0.4 < share < 0.6


def test_the_sd_of_a_pilot_is_the_median_that_its_chi_squared_leaves():
    x = normal(0, 2, 4)
    found = planned_seeds(x, 0, 2.0, paired=False)
    of_pilot = x.var(1, ddof=1).sum()
    variance = of_pilot * 3 / stats.chi2.median(3)
    assert found.sd[1] == pytest.approx(variance**0.5)


def test_the_range_of_four_plans_of_five_holds_the_seeds_of_the_true_variance():
    rng = RNG(0)
    effect = 0.8
    many = rng.normal(size=(2, 3000))
    true = planned_seeds(many, 0, effect).seeds[1]
    held = 0
    for _ in range(150):
        pilot = rng.normal(size=(2, 4))
        planned = planned_seeds(pilot, 0, effect)
        held += planned.least[1] <= true <= planned.most[1]
    share = held / 150
    # Both variances are taken at one quantile: a little too wide.
    assert 0.75 < share < 0.97


SIX_POINTS = normal(0, 6, 5)


def test_a_smaller_effect_needs_more_seeds():
    large = planned_seeds(SIX_POINTS, 0, 2.0)
    small = planned_seeds(SIX_POINTS, 0, 1.0)
    assert np.nanmax(large.seeds) < np.nanmax(small.seeds)


def test_more_contrasts_need_more_seeds():
    few = planned_seeds(SIX_POINTS, 0, 1.0, count=1)
    many = planned_seeds(SIX_POINTS, 0, 1.0, count=5)
    assert np.nanmax(few.most) < np.nanmax(many.most)


@pytest.mark.parametrize(("effect", "tuning_sd"), [(0.001, 0.0), (1.0, 1.0)])
def test_no_seeds_show_a_tiny_effect_or_one_below_the_noise_of_the_tuning(effect, tuning_sd):
    found = planned_seeds(SIX_POINTS, 0, effect, tuning_sd=tuning_sd)
    assert np.isnan(found.seeds).all()


def test_a_plan_names_seeds_and_time(lmzoo):
    code, out, _ = lmzoo("plan", RECORDS, "--effect", "0.1", "--json")
    found = json.loads(out)
    assert code == 0
    assert "tuning is not included" in " ".join(found["heading"])
    assert "seeds in all of each point" in found["answer"]
    rows = pl.DataFrame(found["rows"]).drop_nulls("seeds")
    assert rows["seeds"].min() >= 2
    assert rows["hours"].max() > 0


@pytest.fixture
def plan_of_lstm():
    path = RECORDS.with_name("lstm_variants-captions.parquet")
    return plan(path, 0.02)


def test_what_only_the_choice_of_a_setting_hides_is_named(plan_of_lstm):
    why = "the choice of its setting is too uncertain; more tuning runs first"
    expected = []
    for row in plan_of_lstm["rows"]:
        if row["seeds"] is None:
            expected.append(f"cannot be decided with this: {row['point']} ({why})")
    said = [line for line in plan_of_lstm["warnings"] if "cannot" in line]
    assert expected
    assert said == expected


def test_a_tuned_point_would_need_fewer_seeds(plan_of_lstm):
    saved = [row["seeds"] - row["seeds_if_tuned"] for row in plan_of_lstm["rows"] if row["seeds"]]
    assert min(saved) >= 0
    assert max(saved) > 0


QUESTION: dict[str, Any] = {"by": "variant", "metric": "loss"}


def planned_in_unit(unit):
    """Return the plan of the second variant, its losses and the effect in this unit."""
    results = []
    losses = unit * normal(0, 2, 5)
    for variant, of_variant in enumerate(losses.tolist()):
        for loss in of_variant:
            results.append({"variant": variant, "loss": loss})
    planned = plan(results, effect=2.0 * unit, **QUESTION)
    return planned["rows"][0]


@pytest.mark.parametrize("unit", [1e-160, 1e90])
def test_a_unit_changes_no_plan(unit):
    plain = planned_in_unit(1.0)
    found = planned_in_unit(unit)
    assert found["seeds"] == plain["seeds"] > 2
    assert found["sd"] == pytest.approx(unit * plain["sd"])


def test_one_variant_is_a_pilot_of_unpaired_runs():
    results = pl.DataFrame({"acc": normal(0, 6)})
    results = results.with_columns(variant=pl.lit("a"))
    found = plan(results, 1.0, by="variant", metric="acc", minutes=1.0)
    assert found["rows"][0]["seeds"] > 2


def test_the_runs_of_a_history_are_found_as_by_judge(lmzoo, tmp_path):
    file = tmp_path / "r.csv"
    lines = ["run,epoch,state,loss"]
    for variant in "ab":
        for seed in (1, 2, 3):
            run = f"{variant}-s{seed}"
            lines.append(f"{run},1,odd,{seed}")
            lines.append(f"{run},2,odd,{seed / 2}")
    file.write_text("\n".join(lines))
    asked = ("--by", "v", "--metric", "loss", "--effect", "1")
    ways = ("--parse", "(?P<v>.)-s(?P<seed>.)", "--step", "epoch", "--finished", "odd")
    _, out, _ = lmzoo("plan", file, *asked, *ways)
    assert "12 rows read: 6 counted, 6 other rows of runs" in out


PILOTS = rows(CASES, "pilots")[0]


def pilot(name="two variants"):
    """Return the runs of a pilot."""
    return [{"variant": variant, "loss": loss} for variant, loss in PILOTS[name]]


@cases(CASES, "unplanned")
def test_bad_numbers_are_one_line(case):
    given = {"effect": 1.0} | QUESTION | case.get("options", {})
    runs = pilot(case.get("pilot", "two variants"))
    with raises_user_error(case["says"]):
        plan(runs, **given)


def test_a_plan_of_a_table_needs_a_question():
    with raises_user_error("needs --by and --metric"):
        plan(pilot(), 1.0, metric="loss")


@pytest.fixture
def with_a_bad_run():
    """The pilot with seeds and states; one run has the state `bad`."""
    results = []
    for number, row in enumerate(pilot()):
        seed = number % 4
        results.append(row | {"s": seed, "x": number, "state": "ok"})
    results[-1]["state"] = "bad"
    return results


@cases(CASES, "questions", "change")
def test_plan_says_of_a_table_what_judge_says(change, with_a_bad_run):
    question = QUESTION | change
    assert of_plan(with_a_bad_run, question) == of_judge(with_a_bad_run, question)


def of_judge(results, question):
    """Return what `judge` says of the runs of results: warnings and account, or why not."""
    try:
        report = judgement(results, Question(**question))
    except UserError as error:
        return [str(error)]
    return lines_of(report)


def of_plan(results, question):
    """Return what `plan` says of them."""
    try:
        report = plan_report(results, effect=1.0, power=0.8, **question)
    except UserError as error:
        return [str(error)]
    return lines_of(report)


def lines_of(report):
    """Return warnings and account, without what a plan adds of its own."""
    lines = []
    for line in report.warnings:
        if not line.startswith("cannot be decided"):
            lines.append(line)
    return lines + [account_line(report.account)]


@cases(CASES, "refused")
def test_plan_and_judge_refuse_the_same(case, tmp_path):
    assert_same(case, tmp_path)


@cases(CASES, "said")
def test_plan_and_judge_say_the_same(case, tmp_path):
    assert_same(case, tmp_path)


@cases(CASES, "bad")
def test_plan_and_judge_have_the_same_bad_input(case, tmp_path):
    assert_same(case, tmp_path)


@cases(CASES, "scanned")
def test_plan_and_judge_read_histories_alike(case, tmp_path):
    assert_same(case, tmp_path, step="step")


def assert_same(case, folder, **options):
    file = folder / "r.csv"
    file.write_text(case["content"])
    question = QUESTION | options | case.get("question", {})
    judged = of_judge(file, question)
    planned = of_plan(file, question)
    # A pilot of one variant is a plan; without noise there is none.
    is_alone = "there is one variant only" in judged[0]
    is_own = "no two seeds" in planned[0] or "shows no noise" in planned[0]
    if not is_alone and not is_own:
        assert planned == judged
