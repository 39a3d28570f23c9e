r"""The judges: each is one function of a case, and says keep, discard or nothing, and its seeds.

To add a judge, write a function of at most 30 lines and give it a name with `@judge`:

    @judge("median lower")
    def median_lower(case: Case) -> Answer:
        \"\"\"The candidate's median of five is lower.\"\"\"
        return keep_if(np.median(case.b[:5]) < np.median(case.a[:5]), 5)

Lower is better. The two arrays have `BUDGET` losses in the order of the seeds; if `case.paired`,
equal places are the same seed. A judge reads as many as it needs from the left. A run that
diverged has the loss `case.failure`, since no rival takes infinity. A judge of another package
imports it inside the function; without the package it is left out.
"""

# pyright: reportMissingImports=false
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from benchmarks.crash_test.levels import keep_level, keep_looks
from lmzoo.lab.judging.commands import DISCARD, KEEP, decide
from lmzoo.lab.statistics.compared import compared, looks, spend

Array = NDArray[np.float64]
BUDGET = 12
"""Seeds of the incumbent and of the candidate that a judge may use, each."""
LEVEL = 0.05
RESAMPLES = 2000
TAU = 0.2
"""Violation of the stochastic order below which deepsig's authors advise to reject."""


@dataclass(frozen=True, eq=False)
class Case:
    """What a judge knows of one decision."""

    a: Array
    """Losses of the incumbent."""
    b: Array
    """Losses of the candidate."""
    floor: Array
    """Five other losses of the incumbent: a noise floor that was measured before."""
    sigma: float
    """A standard deviation that is assumed: that of other studies of the task."""
    failure: float
    """The loss that a diverged run has here."""
    paired: bool = True
    place: int = 1
    """Place of the candidate in a series, and those kept before it."""
    kept: int = 0


class Answer(NamedTuple):
    """A decision: +1 keep, −1 discard as worse, 0 nothing is shown; and seeds of each side."""

    word: int
    seeds: int


class Judge(NamedTuple):
    """A judge and its rule in a phrase."""

    name: str
    rule: str
    decide: Callable[[Case], Answer]
    package: str = ""


JUDGES: dict[str, Judge] = {}


def judge(name: str, package: str = "") -> Callable[[Any], Any]:
    """Register a function as a judge; its docstring is the rule in the table."""

    def add(function: Callable[[Case], Answer]) -> Callable[[Case], Answer]:
        rule = (function.__doc__ or "").split("\n")[0].rstrip(".")
        JUDGES[name] = Judge(name, rule, function, package)
        return function

    return add


def keep_if(better: Any, seeds: int) -> Answer:
    """Return keep or discard: a rule that is never undecided."""
    return Answer(1 if better else -1, seeds)


def by_p(p: float, difference: float, seeds: int, level: float = LEVEL) -> Answer:
    """Return the answer of a two-sided p; the difference is the candidate's minus the other's."""
    return Answer(-int(np.sign(difference)) if p < level else 0, seeds)


@cache
def resampled(n: int, count: int) -> NDArray[np.int64]:
    """Return the rows of bootstrap samples of two sides, (2, count, n)."""
    return np.random.default_rng(0).integers(0, n, (2, count, n))


@cache
def rank_sums(n: int, m: int) -> Array:
    """Return the probabilities of Mann and Whitney's U = 0, 1, ..., n m without an effect."""
    ways = np.zeros((n + 1, m + 1, n * m + 1))
    ways[0, :, 0] = ways[:, 0, 0] = 1
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            ways[i, j] = ways[i, j - 1]
            ways[i, j, j:] += ways[i - 1, j, : n * m + 1 - j]
    return ways[n, m] / ways[n, m].sum()


@cache
def signed_rank_sums(n: int) -> Array:
    """Return the probabilities of the sum 0, 1, ... of the ranks of negative differences."""
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.convolve(ways, [1] + [0] * (rank - 1) + [1])
    return ways / ways.sum()


@judge("keep if lower")
def keep_if_lower(case: Case) -> Answer:
    """One run each."""
    return keep_if(case.b[0] < case.a[0], 1)


@judge("mean of three")
def mean_of_three(case: Case) -> Answer:
    """The lower mean of three seeds."""
    return keep_if(case.b[:3].mean() < case.a[:3].mean(), 3)


@judge("two sigma")
def two_sigma(case: Case) -> Answer:
    """One run below the incumbent's mean by two of its standard deviations, of five."""
    z = (case.b[0] - case.floor.mean()) / max(case.floor.std(ddof=1), 1e-12)
    return Answer(-int(np.sign(z)) if abs(z) > 2 else 0, 1)


@judge("Welch")
def welch(case: Case) -> Answer:
    """Welch's t-test at 5 %."""
    if np.ptp(case.a) == np.ptp(case.b) == 0:
        return Answer(0, len(case.a))
    n, u, v = len(case.a), case.a.var(ddof=1), case.b.var(ddof=1)
    freedom = (n - 1) * (u + v) ** 2 / (u**2 + v**2)
    difference = case.b.mean() - case.a.mean()
    p = 2 * special.stdtr(freedom, -abs(difference) / np.sqrt((u + v) / n))
    return by_p(p, difference, n)


@judge("paired t")
def paired_t(case: Case) -> Answer:
    """A paired t-test at 5 %."""
    return _t(case.b - case.a)


@judge("paired t, 6 seeds")
def paired_t_of_six(case: Case) -> Answer:
    """The same with half of the seeds."""
    return _t((case.b - case.a)[: len(case.a) // 2])


def _t(d: Array) -> Answer:
    error = d.std(ddof=1) / np.sqrt(len(d))
    if error == 0:
        return Answer(0, len(d))
    p = 2 * special.stdtr(len(d) - 1, -abs(d.mean() / error))
    return by_p(p, d.mean(), len(d))


@judge("Mann-Whitney")
def mann_whitney(case: Case) -> Answer:
    """A rank test at 5 %."""
    wins = (case.a[:, None] > case.b).sum() + (case.a[:, None] == case.b).sum() / 2
    u = min(wins, len(case.a) * len(case.b) - wins)
    p = min(1.0, 2 * rank_sums(len(case.a), len(case.b))[: int(u) + 1].sum())
    return by_p(p, np.median(case.b) - np.median(case.a), len(case.a))


@judge("bootstrap")
def bootstrap(case: Case) -> Answer:
    """The 95 % percentile interval of the difference of means, as in rliable."""
    rows = resampled(len(case.a), RESAMPLES)
    means = case.b[rows[0]].mean(1) - case.a[rows[1]].mean(1)
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return Answer(1 if high < 0 else -1 if low > 0 else 0, len(case.a))


@judge("almost stochastic order")
def almost_stochastic_order(case: Case) -> Answer:
    """The violation is below 0.2 with 95 % confidence, as in deepsig."""
    if violation(case.b, case.a) < TAU:
        return Answer(1, len(case.a))
    return Answer(-1 if violation(case.a, case.b) < TAU else 0, len(case.a))


def violation(x: Array, y: Array, resamples: int = 1000) -> float:
    """Return the upper bound of how much the order "x is lower" is violated (equal numbers)."""

    def ratio(x: Array, y: Array) -> Array:
        d = np.sort(x, -1) - np.sort(y, -1)
        whole = (d**2).sum(-1)
        return np.where(whole > 0, (np.maximum(d, 0) ** 2).sum(-1) / np.maximum(whole, 1e-300), 0.5)

    rows = resampled(len(x), resamples)
    found = float(ratio(x, y))
    spread = float((ratio(x[rows[0]], y[rows[1]]) - found).std())
    return float(np.clip(found - spread * special.ndtri(LEVEL), 0, 1))


@judge("WilcoxonPruner")
def wilcoxon_pruner(case: Case) -> Answer:
    """Optuna's rule: seed by seed, pruned at p < 0.1; what is left is compared."""
    for n in range(4, len(case.a) + 1):  # three seeds have no p below 0.1
        d = case.b[:n] - case.a[:n]
        if d.mean() <= 0:
            continue
        ranks = stats.rankdata(np.abs(d))
        low = (ranks * (d < 0) + ranks * (d == 0) / 2).sum()
        p = signed_rank_sums(n)[: int(low) + 1].sum()
        if p < 0.1:
            return Answer(-1, n)
    return keep_if(case.b.mean() < case.a.mean(), len(case.a))


@judge("speed-run rule")
def speed_run(case: Case) -> Answer:
    """Mean of eight better at p < 0.01 with an assumed standard deviation."""
    d = case.b[:8].mean() - case.a[:8].mean()
    p = special.ndtr(-abs(d) / (case.sigma * np.sqrt(2 / 8)))
    return by_p(p, d, 8, 0.01)


@judge("evalstats", "evalstats")
def evalstats(case: Case) -> Answer:
    """Its interval of the paired difference."""
    from evalstats.core.paired import pairwise_differences

    scores, rng = -np.stack([case.a, case.b]), np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pairwise_differences(scores, 1, 0, n_bootstrap=RESAMPLES, rng=rng)
    return Answer(1 if found.ci_low > 0 else -1 if found.ci_high < 0 else 0, len(case.a))


@judge("evalsig", "evalsig")
def evalsig(case: Case) -> Answer:
    """Its gate: allow if better at a one-sided 5 %."""
    from evalsig import GateVerdict, gate

    a, b = _frame(case.a), _frame(case.b)
    if np.ptp(case.a - case.b) == 0:
        return Answer(0, len(case.a))
    allowed = gate(a, b, min_delta=1e-12, n_resamples=RESAMPLES).verdict is GateVerdict.ALLOW
    return Answer(1 if allowed else 0, len(case.a))


def _frame(losses: Array) -> Any:
    from evalsig import ItemResult, RunFrame

    items = [ItemResult(str(i), -float(loss)) for i, loss in enumerate(losses)]
    return RunFrame("run", "model", "task", "loss", items)


@judge("evalsig, sequential", "evalsig")
def evalsig_sequential(case: Case) -> Answer:
    """Its always-valid gate, seed by seed from the third."""
    from evalsig import sequential_gate

    d = case.a - case.b
    found = sequential_gate(d, alternative="two-sided", min_n=3, alpha=LEVEL)
    return Answer(int(np.sign(found.delta)) if found.stopped else 0, found.n_pairs)


@judge("statgate", "statgate")
def statgate(case: Case) -> Answer:
    """Its gate with a margin of 0."""
    from statgate import EvalRecord, GateSettings, Verdict, evaluate_gate

    a, b = (
        [EvalRecord(case_id=str(i), score=-float(loss)) for i, loss in enumerate(losses)]
        for losses in (case.a, case.b)
    )
    settings = GateSettings(margin=0.0, seed=0, resamples=RESAMPLES, permutations=100)
    verdict = evaluate_gate(a, b, settings).verdict
    return Answer({Verdict.SHIP: 1, Verdict.BLOCK: -1}.get(verdict, 0), len(case.a))


@judge("siggate", "deltagate")
def siggate(case: Case) -> Answer:
    """Deltagate's paired interval, on which siggate's label rests."""
    from deltagate import paired_delta

    found = paired_delta(case.a.tolist(), case.b.tolist())
    if np.ptp(case.a - case.b) == 0:
        return Answer(0, len(case.a))
    return by_p(found["p_value"], -found["delta"], len(case.a))


@judge("e-value", "ville")
def e_value(case: Case) -> Answer:
    """Ville's betting on the sign of the difference, until e is 20."""
    from ville import BettingTest

    signs = np.sign(case.a - case.b) / 2 + 0.5
    test = BettingTest(0.5, alpha=LEVEL).fit(signs)
    above = np.flatnonzero(test.e_values_ >= 1 / LEVEL)
    if not above.size:
        return Answer(0, len(case.a))
    n = int(above[0]) + 1
    return Answer(int(np.sign(signs[:n].mean() - 0.5)), n)


@judge("lmzoo judge")
def lmzoo_judge(case: Case) -> Answer:
    """Looks at 3, 6 and 12 seeds, that together are wrong with 5 %."""
    return _looks(case)


@judge("lmzoo judge --stream")
def lmzoo_stream(case: Case) -> Answer:
    """The same at the level of the candidate's place in a series."""
    plain = _looks(case)
    if plain.word <= 0:
        return plain
    return _looks(case, keep_level(case.place, case.kept))


@lru_cache(maxsize=4)
def _looks(case: Case, level: float | None = None) -> Answer:
    """Return the answer of `decide` after 3, 6, ... seeds; the level of a series keeps less."""
    x, early = np.stack([case.a, case.b]), looks(3, len(case.a))
    x[x >= case.failure] = np.inf  # it reads a diverged run as one
    last = _word(x, early, level)
    for n in early[:-1] if last else ():  # what is undecided at the end was so before
        known = np.where(np.arange(len(case.a)) < n, x, np.nan)
        word = _word(known, early, level)
        if word:
            return Answer(word, n)
    return Answer(last, len(case.a))


def _word(x: Array, early: list[int], level: float | None) -> int:
    decision, _ = decide(x, spend(early))
    if level is None or decision == DISCARD:
        return {KEEP: 1, DISCARD: -1}.get(decision, 0)
    ended = np.array([(np.append(np.isnan(row), True)).argmax() for row in x])
    c = compared(x, 0, looks=keep_looks(spend(early), level), margin=0.0, ended=ended)
    return int(c.confirmed[1] and c.sign[1] < 0)


@cache
def available() -> dict[str, Judge]:
    """Return the judges whose packages are installed."""
    return {n: j for n, j in JUDGES.items() if not j.package or find_spec(j.package)}
