"""Samplers: where the settings of a search come from.

tpe     Optuna's tree-structured Parzen estimator; it models the results from the fifth on
gp      Optuna's Gaussian process, from the fifth result on; needs scipy
cmaes   Optuna's CMA-ES, for two or more ranges of numbers; needs the package cmaes
qmc     a scrambled Sobol sequence, which covers the space evenly; needs scipy
random  independent random settings
grid    all combinations of the values of choices and of evenly spaced values of ranges

An object of the user's is any `optuna.samplers.BaseSampler` that was built with a seed, or a
function that takes `seed` and returns one: `functools.partial(TPESampler, n_startup_trials=3)`. Two
copies of the sampler must suggest the same settings if they get the same results in the same
order. An object is copied for each point; a function gives each point a seed of its own.
"""

import copy
import importlib.util
import itertools
import math
import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna import samplers
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from lmzoo.errors import UserError
from lmzoo.search_space import Choice, IntRange, Range
from lmzoo.study.search import distribution
from lmzoo.study.study import Study

STARTUP = 5
"""Results that a model of the results needs; until then suggestions are random."""

Space = Mapping[str, Range]


class GridSampler(samplers.BaseSampler):
    """Suggests the combinations of a grid in random order.

    A choice gives all its values. Each range gives the same number of evenly spaced values, the
    least number, from two on, with which there are `samples` combinations. Tried combinations are
    skipped; when all have been tried, they are repeated.
    """

    def __init__(self, space: Space, samples: int, seed: int) -> None:
        self._space = {path: distribution(bounds) for path, bounds in space.items()}
        choices = [len(bounds.values) for bounds in space.values() if isinstance(bounds, Choice)]
        ranges = len(space) - len(choices)
        count = 2
        while ranges and math.prod(choices) * count**ranges < samples:
            count += 1
        combinations = itertools.product(*(_values(bounds, count) for bounds in space.values()))
        self._grid = [dict(zip(space, values, strict=True)) for values in combinations]
        random.Random(seed).shuffle(self._grid)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        trials = study.get_trials(deepcopy=False)
        tried = [t.params for t in trials if t.state != TrialState.FAIL]
        untried = (setting for setting in self._grid if setting not in tried)
        return next(untried, self._grid[len(tried) % len(self._grid)])

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        raise AssertionError(f"{param_name} is not in the grid")


def _tpe(study: Study, space: Space, seed: int) -> samplers.BaseSampler:
    several = len(space) > 1
    return samplers.TPESampler(
        seed=seed, n_startup_trials=STARTUP, multivariate=several, constant_liar=True
    )


def _gp(study: Study, space: Space, seed: int) -> samplers.BaseSampler:
    _need("gp", "scipy")
    return samplers.GPSampler(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)


def _cmaes(study: Study, space: Space, seed: int) -> samplers.BaseSampler:
    _need("cmaes", "cmaes")
    if sum(not isinstance(bounds, Choice) for bounds in space.values()) < 2:
        raise UserError(
            f"sampler 'cmaes' needs two or more ranges of numbers, not {', '.join(space)}; "
            "choose tpe, gp or qmc"
        )
    return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _qmc(study: Study, space: Space, seed: int) -> samplers.BaseSampler:
    _need("qmc", "scipy")
    return samplers.QMCSampler(scramble=True, seed=seed, warn_independent_sampling=False)


SAMPLERS: dict[str, Callable[[Study, Space, int], samplers.BaseSampler]] = {
    "tpe": _tpe,
    "gp": _gp,
    "cmaes": _cmaes,
    "qmc": _qmc,
    "random": lambda study, space, seed: samplers.RandomSampler(seed),
    "grid": lambda study, space, seed: GridSampler(space, study.samples, seed),
}


def make_sampler(study: Study, space: Space, seed: int) -> samplers.BaseSampler:
    """Return a new sampler for one point of a study.

    Raises:
        UserError: It is neither a known name nor a sampler, or it cannot search this space.
    """
    sampler, seed = study.sampler, seed % 2**32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if isinstance(sampler, str) and sampler in SAMPLERS:
            return SAMPLERS[sampler](study, space, seed)
        if callable(sampler):
            sampler = sampler(seed=seed)
    if isinstance(sampler, samplers.BaseSampler):
        return copy.deepcopy(sampler)
    raise UserError(
        f"no sampler {study.sampler!r}; choose {', '.join(SAMPLERS)}, or give a sampler of Optuna"
    )


def _need(sampler: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(f"sampler {sampler!r} needs the package {package}: pip install {package}")


def _values(bounds: Range, count: int) -> list[Any]:
    """Return the values of a choice, or `count` evenly spaced values of a range."""
    if isinstance(bounds, Choice):
        return list(bounds.values)
    shares = [i / (count - 1) for i in range(count)]
    if bounds.log:
        values = [bounds.low * (bounds.high / bounds.low) ** share for share in shares]
    else:
        values = [bounds.low + (bounds.high - bounds.low) * share for share in shares]
    if isinstance(bounds, IntRange):
        return list(dict.fromkeys(map(round, values)))
    return [min(max(value, bounds.low), bounds.high) for value in values]
