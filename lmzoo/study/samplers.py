"""Samplers: where the settings of a search come from.

tpe     Optuna's tree-structured Parzen estimator; it models the results from the third on
gp      Optuna's Gaussian process, from the third result on; needs scipy
cmaes   Optuna's CMA-ES, for two or more ranges of numbers; needs the package cmaes
qmc     a scrambled Sobol sequence, which covers the space evenly; needs scipy
random  independent random settings

An object of the user's is any `optuna.samplers.BaseSampler` that was built with a seed, or a
function that takes `seed` and returns one: `functools.partial(TPESampler, n_startup_trials=3)`. Two
copies of the sampler must suggest the same settings if they get the same results in the same
order. An object is copied for each point; a function gives each point a seed of its own.
"""

import copy
import importlib.util
import warnings
from collections.abc import Callable, Mapping

import optuna
from optuna import samplers

from lmzoo.errors import UserError
from lmzoo.search_space import Choice, Range
from lmzoo.study.study import Study

STARTUP = 3
"""Results that a model of the results needs; until then suggestions are random."""

Space = Mapping[str, Range]


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
