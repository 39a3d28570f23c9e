"""Ways of choosing a setting, applied to recorded curves: ours and its rivals.

A rule gets, for each point, the curves of J settings: the lowest validation loss up to each epoch,
(J, E). All settings of a point have the same training seed. It returns an `Outcome`. With `stops`
false it trains every setting to the end and is the same otherwise.

Random rates are drawn from the range of the recorded ones, uniformly in the logarithm, and replaced
by the nearest recorded rate. A rate that is drawn twice is trained twice, with the same curve.
"""

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

from lmzoo.search_space import FloatRange
from lmzoo.statistics.responses import fit_responses
from lmzoo.study.design import coordinates
from lmzoo.study.pruners import KEEP, Asha, rung_epoch

Array = NDArray[np.float64]
FORMER_SAMPLES, FORMER_PARALLEL, FORMER_RUNGS, FORMER_REDUCTION = 4, 2, (2, 6), 3
RANDOM_SAMPLES = 3
TOGETHER = 2
"""Trials of a point that Tune trains at the same time."""


class Outcome(NamedTuple):
    """What a rule did with P points."""

    best: NDArray[np.int64]
    """The chosen setting, (P,)."""
    finished: NDArray[np.bool_]
    """The settings that were trained to the end, (P, J)."""
    epochs: Array
    """Epochs trained, (P,)."""
    tuning_sd: Array
    """The standard deviation that the rule states for its choice, (P,); 0 if it states none."""


Choice = Callable[..., Outcome]


class Rule(NamedTuple):
    """A way of choosing the settings of a study's points."""

    choose: Choice | None
    """None chooses the best setting, which only a simulation knows."""
    stops: bool = False
    """Whether it stops trainings early."""
    one_seed: bool = False
    """Whether all points have the same tuning seed."""

    def apply(self, curves: Sequence[Array], truth: Array, rates: list[float], n: int) -> Outcome:
        """Choose in the study of number `n`, whose settings have the losses `truth`, (P, J)."""
        if self.choose is None:
            points, settings = truth.shape
            finished = np.ones((points, settings), bool)
            return Outcome(truth.argmin(1), finished, np.zeros(points), np.zeros(points))
        return self.choose(curves, rates, np.random.default_rng([n, 1]), stops=self.stops)


def response(curves: Sequence[Array], rates: list[float], _: Any, *, stops: bool) -> Outcome:
    """Choose by the fit to all points; settings outside the best 60 % stop at the rung."""
    x = coordinates({"lr": _range(rates)}, [{"lr": rate} for rate in rates])
    final = np.array([curve[:, -1] for curve in curves])
    finished = np.ones(final.shape, bool)
    rungs = [rung_epoch(curve.shape[1]) for curve in curves]
    if stops:
        at_rung = [curve[:, rung - 1] for curve, rung in zip(curves, rungs, strict=True)]
        order = fit_responses(at_rung, x).order
        np.put_along_axis(finished, order[:, math.ceil(KEEP * len(x)) :], values=False, axis=1)
    fit = fit_responses(np.where(finished, final, np.nan), x)
    full = np.array([curve.shape[1] for curve in curves])[:, None]
    epochs = np.where(finished, full, np.array(rungs)[:, None]).sum(1).astype(float)
    return Outcome(fit.best, finished, epochs, fit.tuning_sd)


def grid(curves: Sequence[Array], rates: list[float], _: Any, *, stops: bool) -> Outcome:
    """Take the minimum of all settings."""
    return _of_points([_minimum(curve, range(len(rates))) for curve in curves])


def random_search(
    curves: Sequence[Array], rates: list[float], rng: np.random.Generator, *, stops: bool
) -> Outcome:
    """Take the minimum of three random settings."""
    low, high = np.log(_bounds(rates))
    draws = [np.exp(rng.uniform(low, high, RANDOM_SAMPLES)) for _ in curves]
    tried = [[_nearest(rates, rate) for rate in draw] for draw in draws]
    return _of_points([_minimum(c, own) for c, own in zip(curves, tried, strict=True)])


def former(
    curves: Sequence[Array], rates: list[float], rng: np.random.Generator, *, stops: bool
) -> Outcome:
    """Take the minimum of the middle rate and three others, pruned by ASHA in windows of two.

    The others are random and different: TPE needs five results.
    """
    pruner, middle = Asha(FORMER_RUNGS, FORMER_REDUCTION), len(rates) // 2
    points = []
    for curve in curves:
        others = [j for j in range(len(rates)) if j != middle]
        tried = [middle, *rng.choice(others, FORMER_SAMPLES - 1, replace=False)]
        known: list[dict[int, float]] = []
        for i, j in enumerate(tried):
            epochs = dict(enumerate(curve[j].tolist(), 1))
            for level, rung in enumerate(FORMER_RUNGS if stops else ()):
                earlier = known[: max(0, i - FORMER_PARALLEL * (level + 1) + 1)]
                if pruner.prunes(rung, {e: epochs[e] for e in epochs if e <= rung}, earlier):
                    epochs = {e: epochs[e] for e in epochs if e <= rung}
                    break
            known.append(epochs)
        complete = [j for j, run in zip(tried, known, strict=True) if len(run) == curve.shape[1]]
        point = _minimum(curve, complete)
        points.append((*point[:2], float(sum(map(len, known)))))
    return _of_points(points)


def tune(
    curves: Sequence[Array], rates: list[float], rng: np.random.Generator, *, stops: bool
) -> Outcome:
    """Let Ray Tune decide: five settings of `OptunaSearch`, stopped by `ASHAScheduler`.

    Both have their defaults: TPE suggests at random until it has ten results, ASHA judges at the
    epochs 1 and 4 and keeps the best quarter. The lowest last loss of all trials wins.
    """
    low, high = _bounds(rates)
    points = []
    for curve in curves:
        search = OptunaSearch(
            {"lr": FloatDistribution(low, high, log=True)},
            metric="loss", mode="min", seed=int(rng.integers(2**31)),
        )  # fmt: skip
        scheduler: Any = ASHAScheduler(metric="loss", mode="min", max_t=curve.shape[1])
        points.append(_tune_point(curve, rates, search, scheduler if stops else None))
    return _of_points(points)


RULES = {
    "responses, rung": Rule(response, stops=True),
    "responses, no stopping": Rule(response),
    "former default: 4 settings, ASHA": Rule(former, stops=True, one_seed=True),
    "random search, 3": Rule(random_search),
    "grid of five, minimum": Rule(grid),
    "Tune: TPE and ASHA, 5": Rule(tune, stops=True),
    "best setting, known": Rule(None),
}

Point = tuple[int, NDArray[np.bool_], float]


def _tune_point(curve: Array, rates: list[float], search: Any, scheduler: Any) -> Point:
    """Train the trials of a point, `TOGETHER` at a time, epoch by epoch in turn."""
    settings, last, epochs = dict[str, int](), dict[str, float](), 0
    finished, active = np.zeros(len(rates), bool), dict[str, int]()
    while active or len(settings) < len(rates):
        while len(active) < TOGETHER and len(settings) < len(rates):
            name = str(len(settings))
            settings[name] = _nearest(rates, search.suggest(name)["lr"])
            active[name] = 0
            if scheduler:
                scheduler.on_trial_add(None, SimpleNamespace(trial_id=name))
        for name in list(active):
            active[name] += 1
            epochs += 1
            last[name] = float(curve[settings[name], active[name] - 1])
            result = {"loss": last[name], "training_iteration": active[name]}
            complete = active[name] == curve.shape[1]
            trial = SimpleNamespace(trial_id=name)
            stop = scheduler and scheduler.on_trial_result(None, trial, result)
            search.on_trial_result(name, result)
            if complete or stop == TrialScheduler.STOP:
                finished[settings[name]] |= complete
                search.on_trial_complete(name, result)
                del active[name]
    return settings[min(last, key=last.__getitem__)], finished, float(epochs)


def _minimum(curve: Array, tried: Sequence[int]) -> Point:
    """Return the setting with the lowest loss of those that were trained to the end."""
    finished = np.zeros(len(curve), bool)
    finished[list(tried)] = True
    best = min(tried, key=lambda j: curve[j, -1])
    return int(best), finished, float(len(tried) * curve.shape[1])


def _of_points(points: Sequence[Point]) -> Outcome:
    best, finished, epochs = zip(*points, strict=True)
    return Outcome(np.array(best), np.array(finished), np.array(epochs), np.zeros(len(points)))


def _bounds(rates: list[float]) -> tuple[float, float]:
    """Return the range of which the rates are the middles of equal cells."""
    half = (rates[-1] / rates[0]) ** (0.5 / (len(rates) - 1))
    return rates[0] / half, rates[-1] * half


def _range(rates: list[float]) -> FloatRange:
    return FloatRange(*_bounds(rates), log=True)


def _nearest(rates: list[float], rate: float) -> int:
    return int(np.argmin(np.abs(np.log(rates) - math.log(rate))))
