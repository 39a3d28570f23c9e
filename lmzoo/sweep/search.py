"""Optuna's suggestions as a pure function of the settings tried so far.

Ray Tune's Optuna integration asks for a suggestion whenever a worker is free, so its suggestions
depend on the order in which trials end. Here a point's settings come in generations. Generation g
is suggested from the results of all earlier generations, with a seed of its own. The same results
always give the same suggestions, even after an interrupted sweep.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from lmzoo.search_space import Choice, FloatRange, IntRange, Range

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class TriedSetting:
    """A setting and its result."""

    setting: Mapping[str, Any]
    value: float
    """Lowest validation loss; a fixed high loss for a setting that gave none."""
    pruned: bool = False
    curve: Mapping[int, float] = field(default_factory=dict)
    """Epoch -> lowest validation loss up to that epoch."""


def suggest(
    search_space: Mapping[str, Range], tried: Sequence[TriedSetting], count: int, seed: int
) -> list[dict[str, Any]]:
    """Return the next `count` settings, suggested by TPE; the first few are random."""
    distributions = {path: _distribution(bounds) for path, bounds in search_space.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        several = len(search_space) > 1
        sampler = optuna.samplers.TPESampler(
            seed=seed % 2**32, n_startup_trials=5, multivariate=several, constant_liar=True
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        study.add_trials([_frozen_trial(setting, distributions) for setting in tried])
        return [dict(study.ask(distributions).params) for _ in range(count)]


def _frozen_trial(
    tried: TriedSetting, distributions: Mapping[str, BaseDistribution]
) -> optuna.trial.FrozenTrial:
    return create_trial(
        state=TrialState.PRUNED if tried.pruned else TrialState.COMPLETE,
        value=tried.value,
        params=dict(tried.setting),
        distributions=dict(distributions),
        intermediate_values=dict(tried.curve),
    )


def _distribution(bounds: Range) -> BaseDistribution:
    if isinstance(bounds, IntRange):
        return IntDistribution(bounds.low, bounds.high, log=bounds.log)
    if isinstance(bounds, FloatRange):
        return FloatDistribution(bounds.low, bounds.high, log=bounds.log)
    assert isinstance(bounds, Choice)
    return CategoricalDistribution(bounds.values)
