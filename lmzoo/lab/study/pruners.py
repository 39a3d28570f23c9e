"""Pruners: which tune runs stop early.

A pruner compares a run with earlier settings of its point at the same epoch. Which settings these
are is fixed before the run starts (`tuning.py`). So a sweep stops the same runs regardless
of the order of execution, deaths and restarts.

asha     stops a run at a rung (epoch grace·η^k) if its loss is above the best 1/η quantile of the
         other losses known there (Li et al. 2020, arXiv:1810.05934). The runs of the start design
         wait at the first rung for each other (`tuning.py`), and the best ones of the fit to
         all points continue, too.
halving  Optuna's `SuccessiveHalvingPruner`.
median   Optuna's `MedianPruner`, from `grace` on, once `STARTUP` runs have ended.
none     stops no run.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import optuna

from lmzoo.base.errors import UserError
from lmzoo.lab.study.study import Study

Curve = Mapping[int, float]
"""Epoch -> lowest validation loss up to that epoch; there are no later epochs than the present."""

KEEP = 0.75
"""Share of the start design that continues past the first rung because of the fit."""
STARTUP = 3
"""Earlier runs that the median pruner needs."""


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
        known = earlier if epoch in self.rungs else ()
        losses = [other[epoch] for other in known if epoch in other]
        return bool(losses) and curve[epoch] > _quantile(losses, 1 / self.reduction)


class NoPruner:
    """Stops no run."""

    def prunes(self, epoch: int, curve: Curve, earlier: Iterable[Curve]) -> bool:
        return False


class OptunaPruner:
    """A pruner of Optuna, which sees the earlier settings as trials that were run in order.

    It must be deterministic. Every report replays the earlier curves, because some pruners keep
    notes in the trials; after 60 settings of 10 epochs a report takes up to 50 ms.
    """

    def __init__(self, pruner: optuna.pruners.BasePruner) -> None:
        self._pruner = pruner

    def prunes(self, epoch: int, curve: Curve, earlier: Iterable[Curve]) -> bool:
        study = optuna.create_study(pruner=self._pruner, study_name="point")
        for other in earlier:
            trial = study.ask()
            _replay(trial, other)
            # Known up to this epoch only; for Optuna, a trial that has got so far is complete.
            if other and max(other) >= epoch:
                study.tell(trial, other[max(other)])
            else:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return _replay(study.ask(), curve)


PRUNERS: dict[str, Callable[[Study], Pruner]] = {
    "asha": lambda study: Asha(rungs(study), study.reduction),
    "halving": lambda study: OptunaPruner(
        optuna.pruners.SuccessiveHalvingPruner(first_rung(study), study.reduction)
    ),
    "median": lambda study: OptunaPruner(
        optuna.pruners.MedianPruner(STARTUP, n_warmup_steps=first_rung(study) - 1)
    ),
    "none": lambda study: NoPruner(),
}


def make_pruner(study: Study) -> Pruner:
    """Return the pruner of a study; a `UserError` if it is neither a known name nor a pruner."""
    pruner = study.pruner
    if isinstance(pruner, str) and pruner in PRUNERS:
        return PRUNERS[pruner](study)
    if isinstance(pruner, optuna.pruners.BasePruner):
        return OptunaPruner(pruner)
    if isinstance(pruner, Pruner) and not isinstance(pruner, type):
        return pruner
    raise UserError(f"no pruner {pruner!r}; choose {', '.join(PRUNERS)}, or give an object")


def first_rung(study: Study) -> int:
    """Return `grace`, by default half of the epochs.

    With recorded trainings of 10 and 12 epochs (`benchmarks/search.py`), low learning rates look
    worse than they are before: they train more slowly.
    """
    return study.grace or max(1, study.epochs // 2)


def rungs(study: Study) -> tuple[int, ...]:
    """Return the epochs at which ASHA may stop a run: all grace·η^k below the full budget."""
    result, epoch = [], first_rung(study)
    while epoch < study.epochs:
        result.append(epoch)
        epoch *= study.reduction
    return tuple(result)


def until(epoch: int, curve: Curve) -> Curve:
    """Return the curve without the epochs after `epoch`."""
    if max(curve, default=0) <= epoch:
        return curve
    return {e: loss for e, loss in curve.items() if e <= epoch}


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile with linear interpolation, as `numpy.quantile`; faster for few values."""
    values = sorted(values)
    place = (len(values) - 1) * share
    low = values[int(place)]
    return low + (values[math.ceil(place)] - low) * (place % 1)


def _replay(trial: optuna.Trial, curve: Curve) -> bool:
    """Report a curve to a trial; return whether the pruner stops it at the last epoch."""
    stops = False
    for epoch in sorted(curve):
        trial.report(curve[epoch], epoch)
        stops = trial.should_prune()
    return stops
