"""The crash test of judges: its population, its measures and its judges."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.crash_test import decisions, judges, measures, page, population, series
from benchmarks.crash_test import trainings as store

FACTS = ("family", "task", "draw", "width", "batch", "epochs", "clip")
EFFECTS = {"lr*2": 3.0, "linear": -3.0}
"""Changes of the loss, in standard deviations."""


def trainings(studies: int, seed: int = 0) -> pl.DataFrame:
    """Return made-up trainings: normal noise, changes by 3 standard deviations, exact copies."""
    random = np.random.default_rng(seed)
    rows = []
    for study in population.studies()[:studies]:
        facts = {name: getattr(study, name) for name in FACTS}
        facts |= {"study": study.name, "rate": 0.01, "device": "cpu"}
        rows += [facts | row for row in trainings_of_a_study(random)]
    return pl.DataFrame(rows, schema=store.SCHEMA)


def trainings_of_a_study(random: np.random.Generator) -> Iterator[dict[str, Any]]:
    noise = {}
    for name, variant in population.VARIANTS.items():
        seeds = list(range(64))
        if name == "base":
            # The base has 256 trainings more.
            seeds += range(1000, 1256)
        for number in seeds:
            # An inert variant has the noise of the base, of which it is a copy.
            if variant.kind != "inert":
                noise[name, number] = 2 + random.normal()
            loss = noise.get((name, number), noise["base", number])
            loss += EFFECTS.get(name, 0.0)
            row = {"variant": name, "kind": variant.kind, "seed": number}
            yield row | {"loss": loss, "valid": [loss], "train": [loss]}


@pytest.fixture(scope="module")
def pool():
    (pool,) = decisions.pools(trainings(1))
    return pool


@pytest.fixture(scope="module")
def found(pool):
    return list(decisions.decisions(pool))


def test_decisions_share_few_trainings(found):
    used: Counter[float] = Counter()
    for one in found:
        assert len(one.case.a) == len(one.case.b) == judges.BUDGET
        if one.kind == "no-op":
            used.update(one.case.a)
            used.update(one.case.b)
    assert max(used.values()) == 8


def test_decisions_do_not_see_their_effect(pool, found):
    effects = {"base > linear": -3.0, "linear > base": 3.0}
    # A pair is in one of both orders.
    *_, better = [one for one in found if one.kind == "change" and one.pair in effects]
    assert better.known
    assert better.effect == pytest.approx(effects[better.pair], abs=0.6)
    hidden = set(pool.unseen("linear", range(12, 29)))  # the second block and its floor
    assert hidden.isdisjoint(better.case.a)
    assert hidden.isdisjoint(better.case.b)


def test_inert_variants_are_copies(found):
    for one in found:
        if one.kind == "inert":
            assert np.array_equal(one.case.a, one.case.b)


RULES = ("Welch", "paired t", "lmzoo judge", measures.RANK)


@pytest.fixture
def told(pool, monkeypatch):
    """Return what some judges say of each decision."""
    names = ("keep if lower", "Welch", "paired t", "lmzoo judge")
    few = {name: judges.JUDGES[name] for name in names}
    monkeypatch.setattr(measures, "available", lambda: few)
    return measures.outcomes(pool, 0.2)


def test_rates_of_judges_on_no_ops(told):
    lower = told.filter(judge="keep if lower")
    paired = told.filter(judge="paired t")
    # Half of all differences without a cause are below zero.
    assert measures.keeps(lower, "no-op").value == pytest.approx(0.5, abs=0.2)
    assert measures.keeps(paired, "no-op").value < 0.1


def test_no_judge_keeps_a_copy(told):
    judged = told.filter(pl.col("judge") != measures.RANK)
    of_copies = judged.filter(kind="inert")
    assert of_copies["word"].max() <= 0


def test_rules_find_large_effects_with_the_right_sign(told):
    for name in RULES:
        words = told.filter(judge=name)
        right = measures.right(words, 2.0, 4.0)
        wrong = measures.wrong_signs(words)
        assert right.value > 0.9
        assert wrong.value < 0.02


def test_a_rate_has_an_interval_over_studies():
    rows = [{"study": study, "word": int(study == 0)} for study in range(10)]
    frame = pl.DataFrame(rows * 20)
    found = measures.rate(frame, pl.col("word") > 0)
    never = measures.rate(frame, pl.col("word") > 1)
    assert found.value == pytest.approx(0.1)
    assert found.low == 0
    assert found.high == pytest.approx(0.3, abs=0.05)  # of decisions it would be 0.15
    assert never.high == pytest.approx(3 / 200)


def test_rules_are_those_of_scipy():
    random = np.random.default_rng(0)
    for _ in range(30):
        a = random.normal(size=12)
        b = random.normal(0.8, size=12)
        case = judges.Case(a, b, a, 1.0, 9.0)
        tests = {
            "Welch": stats.ttest_ind(a, b, equal_var=False),
            "Mann-Whitney": stats.mannwhitneyu(a, b),
            "paired t": stats.ttest_rel(a, b),
        }
        for name, test in tests.items():
            decided = judges.JUDGES[name].decide(case).word != 0
            assert decided == (test.pvalue < 0.05), name


def test_a_series_of_no_ops_keeps_nothing_true(pool):
    runs = list(series.run_all(pool, 1, 10, ("keep if lower", "paired t")))
    # A series of no-ops has the share -1.
    of_no_ops = {one.judge: one for one in runs if one.share < 0}
    lower = of_no_ops["keep if lower"]
    paired = of_no_ops["paired t"]
    assert lower.keeps == lower.false_keeps > 0
    assert lower.change == 0
    # The first of 11 settings is the one to beat.
    assert paired.seeds == 11 * judges.BUDGET
    assert {one.share for one in runs} == {-1.0} | set(series.SHARES)


@pytest.mark.slow
def test_the_tables_of_a_part_of_the_file():
    frame = pl.read_parquet(store.FILE)
    assert len(frame) > 20_000
    # Three studies take seconds, all of them minutes.
    first, second, third, *_ = frame["study"].unique().sort()
    part = frame.filter(pl.col("study").is_in([first, second, third]))
    computed = page.compute(part, 0.1)
    tables = page.tables_of(part, computed)
    assert tables["figure"].startswith("<svg")
    assert len(tables["judges"].splitlines()) > 2 * 13
    assert "lmzoo judge" in tables["series"]


@pytest.fixture
def verdicts():
    return importlib.import_module("benchmarks.verdicts")


def test_the_noise_of_trainings_has_no_effect_in_it(verdicts):
    studies = verdicts.real_noise()
    assert len(studies) == 36
    for losses in studies:
        means = losses.mean(1)
        assert abs(means).max() < 1e-9
        differences = losses[1:] - losses[0]
        spread = np.median(differences.std(1))
        assert spread.round(6) == 0.044


def test_noise_is_drawn_from_different_trainings(verdicts):
    random = np.random.default_rng(0)
    drawn = verdicts.draw("trained", (12, 5), random)
    assert drawn.shape == (12, 5)
    assert len(set(drawn[0])) == 5
