"""The search of a point as a pure function of its results: a sampler suggests, a pruner stops.

A sampler is where the settings come from:

tpe     Optuna's tree-structured Parzen estimator; it models the results from the third on
gp      Optuna's Gaussian process, from the third result on
random  independent random settings

An object of the user's is any `optuna.samplers.BaseSampler` that was built with a seed, or a
function that takes `seed` and returns one: `functools.partial(TPESampler, n_startup_trials=3)`. Two
copies of the sampler must suggest the same settings if they get the same results in the same
order. An object is copied for each point; a function gives each point a seed of its own.

The sampler of a point suggests the settings 0, 1, 2, ... in this order, whatever the order in which
runs end. The first settings are the start design, which it does not choose. Before setting i it
gets the results of the start design, as the fit to all points has them, and of the settings 0 to
i-`lag`, in this order; the settings between them are running trials for it. After a restart the
same calls are repeated, which gives the same suggestions, also from a sampler that keeps a state.

A pruner says which tune runs stop early. It compares a run with earlier settings of its point at
the same epoch. Which settings these are is fixed before the run starts (`designs.py`). So a sweep
stops the same runs regardless of the order of execution, deaths and restarts.

asha     stops a run at a rung (epoch grace·η^k) if its loss is above the best 1/η quantile of the
         other losses known there (Li et al. 2020, arXiv:1810.05934). No run waits: the window says
         what is known.
halving  the same, but the runs of the start design wait at the first rung for each other
         (`tuning.py`), and the best ones of the fit to all points continue, too.
none     stops no run.
"""

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import optuna
from optuna import samplers
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler
from optuna.trial import TrialState

from lmzoo.base.errors import UserError
from lmzoo.base.restored import quiet
from lmzoo.base.search_space import Choice, FloatRange, IntRange, Range
from lmzoo.lab.statistics.ties import settled
from lmzoo.lab.study.study import Setting, Space, Study

STARTUP = 3
"""Results that a model of the results needs; until then suggestions are random."""


def _tpe(space: Space, seed: int) -> BaseSampler:
    return samplers.TPESampler(
        seed=seed,
        n_startup_trials=STARTUP,
        multivariate=len(space) > 1,
        constant_liar=True,  # settings that are trained now count as bad, and are not repeated
    )


def _gp(space: Space, seed: int) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)


def _random(space: Space, seed: int) -> BaseSampler:
    return samplers.RandomSampler(seed)


SAMPLERS = {"tpe": _tpe, "gp": _gp, "random": _random}


def make_sampler(study: Study, space: Space, seed: int) -> BaseSampler:
    """Return a new sampler for one point of a study.

    A `UserError` says that it is no sampler.
    """
    sampler = study.sampler
    seed = seed % 2**32  # numpy's generators take no more
    with warnings.catch_warnings():
        # Optuna calls some of these options experimental.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if isinstance(sampler, str) and sampler in SAMPLERS:
            return SAMPLERS[sampler](space, seed)
        if callable(sampler):
            sampler = sampler(seed=seed)
    if isinstance(sampler, BaseSampler):
        # Each point gets the sampler as the script made it.
        return copy.deepcopy(sampler)
    raise UserError(
        f"no sampler {study.sampler!r}; choose {', '.join(SAMPLERS)}, or give a sampler of Optuna"
    )


@dataclass(frozen=True)
class Result:
    """The result of a tried setting."""

    value: float
    """Lowest validation loss; a fixed high loss for a setting that gave none."""
    pruned: bool = False
    curve: Mapping[int, float] = field(default_factory=dict)
    """Epoch -> lowest validation loss up to that epoch."""


class Search:
    """Suggests the settings of one point, one after the other."""

    def __init__(self, space: Mapping[str, Range], sampler: BaseSampler, lag: int, design: int = 0):
        """`design` is the number of settings of the start design."""
        self._distributions = {path: distribution(bounds) for path, bounds in space.items()}
        with quiet("optuna"):
            self._study = optuna.create_study(sampler=sampler)
        self._lag = lag
        self._design = design
        self._told = 0
        """Settings of which Optuna has the result."""
        self._trials = list[optuna.Trial | None]()
        """None: a setting of the start design, which Optuna gets with its result."""
        self._known = defaultdict[int, list[float]](list)
        """Epoch -> the losses that Optuna has got of it; 0: of the end."""
        # These two ignore pruned trials. A pruned setting counts with its lowest loss instead.
        self._ignores_pruned = isinstance(sampler, GPSampler | CmaEsSampler)

    def suggest(self, settings: Sequence[Setting], result: Callable[[int], Result]) -> Setting:
        """Return the setting that follows `settings`, which replace what was suggested.

        `result` returns the result of a setting; it is called for the start design and for the
        settings at least `lag` places before the new one.
        """
        for index in range(len(self._trials), len(settings) + 1):
            # Not all results that are there: the suggestion must not depend on timing.
            known = index - self._lag + 1
            if index >= self._design:
                known = max(known, self._design)
            while self._told < known:
                self._tell(settings[self._told], result(self._told))
                self._told += 1
            if index < min(self._design, len(settings)):
                self._trials.append(None)
                continue
            trial = self._study.ask(self._distributions)
            # After a restart the store may have another setting, which then counts.
            if index < len(settings) and trial.params != settings[index]:
                # It is ignored, and the setting of the store is tried instead.
                self._study.tell(trial, state=TrialState.FAIL)
                self._study.enqueue_trial(settings[index])
                trial = self._study.ask(self._distributions)
            self._trials.append(trial)
        last = self._trials[-1]
        assert last is not None, "settings beyond the known ones are needed"
        return {path: last.params[path] for path in self._distributions}

    def _tell(self, setting: Setting, result: Result):
        curve = dict[int, float]()
        value = None
        if result.pruned and not self._ignores_pruned:
            state = TrialState.PRUNED
            for epoch, loss in result.curve.items():
                curve[epoch] = self._settle(epoch, loss)
        else:
            state = TrialState.COMPLETE
            value = self._settle(0, result.value)
        trial = self._trials[self._told]
        if trial is None:
            known = optuna.trial.create_trial(
                state=state,
                value=value,
                params=setting,
                distributions=self._distributions,
                intermediate_values=curve,
            )
            self._study.add_trial(known)
            return
        for epoch, loss in curve.items():
            trial.report(loss, epoch)
        self._study.tell(trial, value, state)

    def _settle(self, epoch: int, loss: float) -> float:
        """Return the loss, or an earlier one that it equals: samplers read the order of losses."""
        known = self._known[epoch]
        value = float(settled([*known, loss])[-1])
        known.append(value)
        return value


def distribution(bounds: Range) -> BaseDistribution:
    """Return a range as Optuna describes it."""
    if isinstance(bounds, IntRange):
        return IntDistribution(bounds.low, bounds.high, log=bounds.log)
    if isinstance(bounds, FloatRange):
        return FloatDistribution(bounds.low, bounds.high, log=bounds.log)
    assert isinstance(bounds, Choice)
    return CategoricalDistribution(bounds.values)


Curve = Mapping[int, float]
"""Epoch -> lowest validation loss up to that epoch; there are no later epochs than the present."""

KEEP = 0.75
"""Share of the start design that continues past the first rung because of the fit."""


@runtime_checkable
class Pruner(Protocol):
    """Decides which runs stop early; a user's own pruner has this one method."""

    def prunes(self, epoch: int, curve: Curve, earlier: Iterable[Curve]) -> bool:
        """Return True if the run with this curve stops at this epoch.

        The answer must depend on the arguments only: a restarted sweep asks again.

        Args:
            epoch: The last epoch of the run, which `curve` contains.
            curve: The curve of the run.
            earlier: The curves of earlier settings, which may have ended before this epoch.
        """
        ...


@dataclass(frozen=True)
class Asha:
    """Compares the loss with a quantile of the earlier losses at rungs."""

    rungs: tuple[int, ...]
    reduction: int

    def prunes(self, epoch: int, curve: Curve, earlier: Iterable[Curve]) -> bool:
        if epoch not in self.rungs:
            return False
        losses = [other[epoch] for other in earlier if epoch in other]
        if not losses:
            return False
        # Rounding must not decide who stops.
        losses = settled([*losses, curve[epoch]])
        limit = np.quantile(losses[:-1], 1 / self.reduction)
        return bool(losses[-1] > limit)


PRUNERS = ("asha", "halving", "none")


def make_pruner(study: Study) -> Pruner:
    """Return the pruner of a study; a `UserError` if it is neither a known name nor a pruner."""
    pruner = study.pruner
    if pruner in ("asha", "halving"):
        return Asha(rungs(study), study.reduction)
    if pruner == "none":
        return Asha((), study.reduction)
    # A class has the method, too, but is no object.
    if isinstance(pruner, Pruner) and not isinstance(pruner, type):
        return pruner
    raise UserError(f"no pruner {pruner!r}; choose {', '.join(PRUNERS)}, or give an object")


def first_rung(study: Study) -> int:
    """Return `grace`, by default half of the epochs.

    With recorded trainings of 10 and 12 epochs (`benchmarks/search.py`), low learning rates look
    worse than they are before: they train more slowly.
    """
    if study.grace:
        return study.grace
    return max(1, study.epochs // 2)


def rungs(study: Study) -> tuple[int, ...]:
    """Return the epochs at which ASHA may stop a run: all grace·η^k below the full budget."""
    epochs = []
    epoch = first_rung(study)
    while epoch < study.epochs:
        epochs.append(epoch)
        # Epochs grow as runs become fewer: each rung costs about the same.
        epoch *= study.reduction
    return tuple(epochs)


def until(epoch: int, curve: Curve) -> Curve:
    """Return the curve without the epochs after `epoch`."""
    # Most curves end there: no copy.
    if max(curve, default=0) <= epoch:
        return curve
    return {known: loss for known, loss in curve.items() if known <= epoch}
