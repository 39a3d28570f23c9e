"""Optuna's suggestions, as a pure function of what is already known.

Tune's own Optuna bridge asks whenever a slot is free, so its suggestions depend on
which trial happened to end first. Here the settings of a point come in generations:
generation g is asked from everything the earlier generations showed, with a seed of
its own. The same records give the same suggestions, whatever was killed in between.
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
    """A setting and what came of it."""

    setting: Mapping[str, Any]
    value: float
    """Lowest validation loss; for a diverged run a loss worse than knowing nothing."""
    pruned: bool = False
    curve: Mapping[int, float] = field(default_factory=dict)
    """Epoch -> lowest validation loss so far."""


def suggest(
    space: Mapping[str, Range], tried: Sequence[TriedSetting], count: int, seed: int
) -> list[dict[str, Any]]:
    """The next `count` settings, by TPE over what was tried (random while little is known)."""
    distributions = {path: _distribution(where) for path, where in space.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed % 2**32, n_startup_trials=5, multivariate=len(space) > 1, constant_liar=True
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        study.add_trials([_told(one, distributions) for one in tried])
        return [dict(study.ask(distributions).params) for _ in range(count)]


def _told(
    one: TriedSetting, distributions: Mapping[str, BaseDistribution]
) -> optuna.trial.FrozenTrial:
    return create_trial(
        state=TrialState.PRUNED if one.pruned else TrialState.COMPLETE,
        value=one.value,
        params=dict(one.setting),
        distributions=dict(distributions),
        intermediate_values=dict(one.curve),
    )


def _distribution(where: Range) -> BaseDistribution:
    if isinstance(where, IntRange):
        return IntDistribution(where.low, where.high, log=where.log)
    if isinstance(where, FloatRange):
        return FloatDistribution(where.low, where.high, log=where.log)
    assert isinstance(where, Choice)
    return CategoricalDistribution(where.values)
