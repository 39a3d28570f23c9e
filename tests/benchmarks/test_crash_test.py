"""The crash test of judges: its population, its measures and its judges."""

import importlib
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.crash_test import decisions, judges, measures, page, population, series
from benchmarks.crash_test import trainings as store


def trainings(studies: int, seed: int = 0) -> pl.DataFrame:
    """Return made-up trainings: normal noise, changes by 3 standard deviations, exact copies."""
    random = np.random.default_rng(seed)
    rows = []
    for study in population.studies()[:studies]:
        facts = {name: getattr(study, name) for name in ("family", "task", "draw", "width")}
        facts |= {name: getattr(study, name) for name in ("batch", "epochs", "clip")}
        noise = {}
        for name, variant in population.VARIANTS.items():
            seeds = [*range(64), *(1000 + np.arange(256) if name == "base" else [])]
            for number in map(int, seeds):
                if variant.kind != "inert":
                    noise[name, number] = 2 + random.normal()
                loss = noise.get((name, number), noise["base", number])
                loss += {"lr*2": 3.0, "linear": -3.0}.get(name, 0.0)
                row = {"variant": name, "kind": variant.kind, "seed": number, "loss": loss}
                row |= {"study": study.name, "rate": 0.01, "device": "cpu", **facts}
                rows.append(row | {"valid": [loss], "train": [loss]})
    return pl.DataFrame(rows, schema=store.SCHEMA)


def test_decisions_share_few_trainings_and_do_not_see_their_effect():
    (pool,) = decisions.pools(trainings(1))
    found = [*decisions.decisions(pool)]
    used: dict[float, int] = {}
    for one in found:
        assert len(one.case.a) == len(one.case.b) == judges.BUDGET
        if one.kind == "no-op":
            for loss in (*one.case.a, *one.case.b):
                used[loss] = used.get(loss, 0) + 1
    assert max(used.values()) == 8
    changed = {one.pair: one for one in found if one.kind == "change"}
    better = next(
        one for pair, one in changed.items() if pair in ("base > linear", "linear > base")
    )
    sign = -1 if better.pair.startswith("base") else 1
    assert better.known
    assert better.effect == pytest.approx(3.0 * sign, abs=0.6)
    hidden = pool.unseen("linear", range(12, 29))  # the second block and its floor
    assert not set(hidden) & {*better.case.a, *better.case.b}
    assert all((one.case.a == one.case.b).all() for one in found if one.kind == "inert")


def test_rates_of_judges_on_normal_noise(monkeypatch):
    names = ("keep if lower", "Welch", "paired t", "lmzoo judge")
    few = {name: judges.JUDGES[name] for name in names}
    monkeypatch.setattr(measures, "available", lambda: few)
    (pool,) = decisions.pools(trainings(1))
    told = measures.outcomes(pool, 0.2)
    parts = {name: told.filter(pl.col("judge") == name) for name in (*names, measures.RANK)}
    assert measures.keeps(parts["keep if lower"], "no-op").value == pytest.approx(0.5, abs=0.2)
    assert measures.keeps(parts["paired t"], "no-op").value < 0.1
    of_copies = told.filter(pl.col("kind") == "inert", pl.col("judge") != measures.RANK)
    assert (of_copies["word"] <= 0).all()
    for name in ("Welch", "paired t", "lmzoo judge", measures.RANK):
        assert measures.right(parts[name], 2.0, 4.0).value > 0.9
        assert measures.wrong_signs(parts[name]).value < 0.02


def test_a_rate_has_an_interval_over_studies():
    rows = [{"study": s, "word": int(s == 0)} for s in range(10) for _ in range(20)]
    found = measures.rate(pl.DataFrame(rows), pl.col("word") > 0)
    assert found.value == pytest.approx(0.1)
    assert found.low == 0
    assert found.high == pytest.approx(0.3, abs=0.05)  # of decisions it would be 0.15
    assert measures.rate(pl.DataFrame(rows), pl.col("word") > 1).high == pytest.approx(3 / 200)


def test_rules_are_those_of_scipy():
    random, same = np.random.default_rng(0), judges.JUDGES
    for _ in range(30):
        a, b = random.normal(size=12), random.normal(0.8, size=12)
        case = judges.Case(a, b, a, 1.0, 9.0)
        welch = stats.ttest_ind(a, b, equal_var=False).pvalue < 0.05
        assert welch == (same["Welch"].decide(case).word != 0)
        ranks = stats.mannwhitneyu(a, b).pvalue < 0.05
        assert ranks == (same["Mann-Whitney"].decide(case).word != 0)
        paired = stats.ttest_rel(a, b).pvalue < 0.05
        assert paired == (same["paired t"].decide(case).word != 0)


def test_a_series_of_no_ops_keeps_nothing_true(monkeypatch):
    monkeypatch.setattr(series, "LENGTH", 10)
    (pool,) = decisions.pools(trainings(1))
    found = [*series.run_all(pool, 1, ("keep if lower", "paired t"))]
    nulls = {one.judge: one for one in found if one.share < 0}
    assert nulls["keep if lower"].keeps == nulls["keep if lower"].false_keeps > 0
    assert nulls["keep if lower"].change == 0
    assert nulls["paired t"].seeds == 11 * judges.BUDGET
    assert {one.share for one in found} == {-1.0, *series.SHARES}


@pytest.mark.slow
def test_the_tables_of_a_part_of_the_file():
    frame = pl.read_parquet(store.FILE)
    assert len(frame) > 20_000
    part = frame.filter(pl.col("study").is_in(frame["study"].unique().sort().to_list()[:3]))
    tables = page.tables_of(part, page.compute(part, 0.1))
    assert tables["figure"].startswith("<svg")
    assert len(tables["judges"].splitlines()) > 2 * 13
    assert "lmzoo judge" in tables["series"]


def test_the_noise_of_trainings_has_no_effect_in_it():
    verdicts = importlib.import_module("benchmarks.verdicts")
    studies = verdicts.real_noise()
    assert len(studies) == 36
    assert max(abs(x.mean(1)).max() for x in studies) < 1e-9
    assert {np.median((x[1:] - x[0]).std(1)).round(6) for x in studies} == {0.044}
    x = verdicts.draw("trained", (12, 5), np.random.default_rng(0))
    assert x.shape == (12, 5)
    assert len(set(x[0])) == 5
