"""Plans: seeds of a t-test of known power, costs, what cannot be decided."""

import functools
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.render import account_line
from lmzoo.lab.judging.account import Question
from lmzoo.lab.judging.plan import plan, plan_report
from lmzoo.lab.judging.verdicts import judgement
from lmzoo.lab.statistics.power import planned_seeds

ROWS = [{"v": v, "x": float(x)} for v in "ab" for x in range(4)]
CASES = Path(__file__).with_name("cases.toml")
RECORDS = "docs/results/records/gru_ablation-captions.parquet"


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("effect", [0.3, 0.7, 1.5])
def test_two_variants_need_the_seeds_of_a_t_test(paired, effect):
    x = np.random.default_rng(0).normal(size=(2, 5000))
    found = planned_seeds(x, 0, effect, paired=paired)
    seeds, sd = found.seeds[1], found.sd[1]
    rng, n = np.random.default_rng(1), int(seeds)
    for count, is_enough in ((n, True), (n - 1, False)):
        if count < 2:
            continue
        if paired:
            p = stats.ttest_1samp(rng.normal(effect, sd, (20000, count)), 0, axis=1).pvalue
        else:
            a, b = rng.normal(0, sd / np.sqrt(2), (2, 20_000, count))
            p = stats.ttest_ind(a, b + effect, axis=1).pvalue
        reached = (p < 0.05).mean()
        assert reached > 0.79 if is_enough else reached < 0.81


@pytest.mark.parametrize("points", [2, 8])
def test_a_plan_is_too_small_as_often_as_too_large(points):
    """Of pilots with three seeds; the expected variance planned too many seeds more often."""
    rng = np.random.default_rng(0)
    pilots = rng.normal(size=(200 if points == 2 else 80, points, 3))
    planned = [np.sqrt(0.5) * planned_seeds(x, 0, 0.7, count=1).sd[1] for x in pilots]
    assert 0.4 < np.mean(np.array(planned) < 1) < 0.6


def test_the_sd_of_a_pilot_is_the_median_that_its_chi_squared_leaves():
    x = np.array([[0.0, 1.0, 0.5, 0.2], [1.0, 2.0, 2.5, 1.2]])
    variance = x.var(1, ddof=1).sum() * 3 / stats.chi2.median(3)
    assert np.isclose(planned_seeds(x, 0, 2.0, paired=False).sd[1], np.sqrt(variance))


def test_the_range_of_four_plans_of_five_holds_the_seeds_of_the_true_variance():
    rng, effect = np.random.default_rng(0), 0.8
    true = planned_seeds(rng.normal(size=(2, 3000)), 0, effect).seeds[1]
    plans = [planned_seeds(rng.normal(size=(2, 4)), 0, effect) for _ in range(150)]
    held = [own.least[1] <= true <= own.most[1] for own in plans]
    assert 0.75 < np.mean(held) < 0.97  # both variances at one quantile: a little too wide


def test_a_smaller_effect_and_more_contrasts_need_more_seeds_or_cannot_be_shown():
    x = np.random.default_rng(0).normal(size=(6, 5))
    by_effect = [np.nanmax(planned_seeds(x, 0, effect).seeds) for effect in (2.0, 1.0, 0.5)]
    by_count = [np.nanmax(planned_seeds(x, 0, 1.0, count=k).most) for k in (1, 5, 50)]
    assert by_effect == sorted(set(by_effect))
    assert by_count == sorted(set(by_count))
    assert np.isnan(planned_seeds(x, 0, 0.001).seeds).all()
    assert np.isnan(planned_seeds(x, 0, 1.0, tuning_sd=1.0).seeds).all()


def test_a_plan_names_seeds_and_time(lmzoo):
    code, out, _ = lmzoo("plan", RECORDS, "--effect", "0.1", "--json")
    found = json.loads(out)
    rows = found["rows"]
    assert code == 0
    assert "tuning is not included" in " ".join(found["heading"])
    assert "seeds in all of each point" in found["answer"]
    assert all(row["seeds"] >= 2 for row in rows if row["seeds"] is not None)
    assert any(row["hours"] for row in rows)


def test_what_only_the_choice_of_a_setting_hides_is_named():
    found = plan(str(RECORDS).replace("gru_ablation", "lstm_variants"), 0.02)
    open_rows = [row["point"] for row in found["rows"] if row["seeds"] is None]
    why = "the choice of its setting is too uncertain; more tuning runs first"
    said = [f"cannot be decided with this: {point} ({why})" for point in open_rows]
    assert said == [line for line in found["warnings"] if "cannot" in line] != []
    assert all(own["seeds"] > own["seeds_if_tuned"] for own in found["rows"] if own["seeds"])


@pytest.mark.parametrize("scale", [1e-160, 1e90])
def test_a_unit_changes_no_plan(scale):
    x = np.random.default_rng(0).normal(size=(2, 5))
    plans = [
        plan(
            [{"v": i, "x": k * y} for i, own in enumerate(x.tolist()) for y in own],
            effect=2.0 * k, by="v", metric="x", higher_is_better=False,
        )["rows"][0]
        for k in (1.0, scale)
    ]  # fmt: skip
    assert plans[0]["seeds"] == plans[1]["seeds"] > 2
    assert plans[1]["sd"] == pytest.approx(scale * plans[0]["sd"])


def test_one_variant_is_a_pilot_of_unpaired_runs():
    rows = [{"v": "a", "acc": x} for x in np.random.default_rng(0).normal(size=6)]
    found = plan(rows, 1.0, by="v", metric="acc", minutes=1.0)
    assert found["rows"][0]["seeds"] > 2


def test_the_runs_of_a_history_are_found_as_by_judge(lmzoo, tmp_path):
    rows = [f"{v}-s{s},{e},odd,{s / e}" for v in "ab" for s in (1, 2, 3) for e in (1, 2)]
    (tmp_path / "r.csv").write_text("\n".join(["run,epoch,state,loss", *rows]))
    ways = ("--parse", "(?P<v>.)-s(?P<seed>.)", "--step", "epoch", "--finished", "odd")
    of = ("plan", tmp_path / "r.csv", "--by", "v", "--metric", "loss", "--effect", "1", *ways)
    assert "12 rows read: 6 counted, 6 other rows of runs" in lmzoo(*of)[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": 0.0}, "effect 0.0 is not"), ({"effect": math.inf}, "effect is inf"),
        ({"power": 1.0}, "power 1.0 is not"), ({"power": 0.0}, "power 0.0 is not"),
        ({"contrasts": 0}, "contrasts is 0"),
        ({"minutes": -1}, "minutes is -1"), ({"pilot": ROWS[::4]}, "has a single seed"),
        ({"pilot": ROWS[:1]}, "no two seeds"),
        ({"by": None}, "needs --by and --metric"),
        ({"pilot": [r | {"x": len(r["v"])} for r in ROWS]}, "shows no noise: every seed"),
        ({"reference": "c"}, "no variant 'c'"),
    ],
)  # fmt: skip
def test_bad_numbers_are_one_line(options, message):
    given = {"pilot": ROWS, "effect": 1.0, "by": "v", "metric": "x", "higher_is_better": False}
    with pytest.raises(UserError, match=message):
        plan(**given | options)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"reference": "c"}, {"paired": True}, {"seed": "s"}, {"metric": "y"}, {"by": "w"},
        {"higher_is_better": None}, {"finished": ["bad"]}, {"step": "s"}, {"margin": -1.0},
        {"best": "x"}, {"parse": "("},
    ],
    ids=range(12),
)  # fmt: skip
def test_plan_says_of_a_table_what_judge_says(change):
    rows = [r | {"s": i % 4, "state": "bad" if i == 7 else "ok"} for i, r in enumerate(ROWS)]
    q = {"by": "v", "metric": "x", "higher_is_better": False} | change
    judged, planned = answers(rows, q)
    assert judged == planned != []


def answers(results: Any, question: dict[str, Any]) -> list[list[str]]:
    """Return what `judge` and `plan` say of the runs of results: warnings and account, or why not.

    What a plan adds of its own is left out.
    """
    found = []
    for report in (judgement, functools.partial(plan_report, effect=1.0, power=0.8)):
        given = question
        if report is judgement:
            given = {"question": Question(**question)}
        try:
            own = report(results, **given)
            lines = [line for line in own.warnings if not line.startswith("cannot be decided")]
            found.append([*lines, account_line(own.account)])
        except UserError as error:
            found.append([str(error)])
    return found


def test_plan_and_judge_say_the_same_of_each_case(tmp_path):
    tables = tomllib.loads(CASES.read_text())
    kinds = [*tables["refused"], *tables["said"], *tables["bad"], *tables["scanned"]]
    differ = []
    for i, case in enumerate(kinds):
        file = tmp_path / f"{i}.csv"
        file.write_text(case["content"])
        question = {"by": "variant", "metric": "loss"}
        if case in tables["scanned"]:
            question["step"] = "step"
        question |= case.get("question", {})
        judged, planned = answers(file, question)
        is_own = any(own in planned[0] for own in ("no two seeds", "shows no noise"))
        is_alone = "there is one variant only" in judged[0]  # a pilot of one variant is a plan
        if judged != planned and not is_own and not is_alone:
            differ.append((case["content"], judged, planned))
    assert not differ
    assert len(kinds) > 80
