r"""Importance of each searched field: functional analysis of variance with a random forest.

    loss(θ) − mean of the point = Σ_i f_i(θ_i) + Σ_{i<j} f_ij(θ_i, θ_j) + ...
    share of field i = Var f_i / Var loss                 of a regression forest's prediction

The losses are centred by point, because the question is about settings, not about points. A field
searched on a log scale is log-transformed. The shares need not sum to one; the rest is
interactions. Intervals are percentiles over points resampled with replacement, each with its runs;
they are null for fewer than five points.

Hutter, Hoos & Leyton-Brown 2014 (fANOVA); the forest is Optuna's.
"""

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
import polars as pl
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState, create_trial

from lmzoo.analysis.records.search_ranges import Range
from lmzoo.analysis.records.tuning import TuneRuns, run_settings
from lmzoo.errors import UserError

optuna.logging.set_verbosity(optuna.logging.WARNING)

MIN_POINTS = 5
"""Least number of points for an interval."""
MIN_RUNS = 8
TREES = 32


def importance_shares(
    tuning: TuneRuns, search: Mapping[str, Range], *, resamples: int = 20, seed: int = 0
) -> pl.DataFrame:
    """Return field, share, low, high; the largest share first.

    Args:
        tuning: the tune runs.
        search: field -> its range.
        resamples: number of bootstrap resamples of the points.
        seed: random seed of the forest and of the resamples.

    Raises:
        UserError: Too few runs have a loss.
    """
    known = tuning.runs["centred"].is_not_null().to_numpy()
    tried = [s for s, ok in zip(run_settings(tuning), known, strict=True) if ok]
    losses = tuning.runs["centred"].to_numpy()[known]
    labels = tuning.runs["label"].to_numpy()[known]
    if len(tried) < MIN_RUNS or np.ptp(losses) == 0:
        raise UserError(
            f"{len(tried)} tune runs with a loss are not enough to compare fields; at least "
            f"{MIN_RUNS} with different losses are needed: run the sweep with more --samples"
        )
    logs = {name for name in tuning.fields if search[name].get("log")}
    tried = [{n: math.log(v) if n in logs else v for n, v in run.items()} for run in tried]
    fields = {name: _searched_scale(search[name]) for name in tuning.fields}
    shares = _shares(fields, tried, losses, seed)
    resampled = []
    groups = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels)]
    random = np.random.default_rng(seed)
    for index in range(resamples if len(groups) >= MIN_POINTS else 0):
        chosen = random.integers(len(groups), size=len(groups))
        rows = np.concatenate([groups[g] for g in chosen])
        resampled.append(_shares(fields, [tried[r] for r in rows], losses[rows], seed + index + 1))
    no_interval = [[None] * len(fields)] * 2
    ends = np.quantile(resampled, [0.025, 0.975], axis=0) if resampled else no_interval
    frame = pl.DataFrame(
        {"field": list(fields), "share": shares, "low": ends[0], "high": ends[1]},
        {"field": pl.String, "share": pl.Float64, "low": pl.Float64, "high": pl.Float64},
    )
    return frame.sort("share", descending=True)


def distribution(search_range: Range) -> BaseDistribution:
    """Return a range of `study.json` as an Optuna distribution."""
    if "values" in search_range:
        return CategoricalDistribution(search_range["values"])
    low, high = search_range["low"], search_range["high"]
    kind = IntDistribution if isinstance(low, int) and isinstance(high, int) else FloatDistribution
    return kind(low, high, log=search_range["log"])


def _searched_scale(search_range: Range) -> BaseDistribution:
    """Return the distribution on the searched scale: Optuna's forest does not log-transform."""
    if search_range.get("log"):
        return FloatDistribution(math.log(search_range["low"]), math.log(search_range["high"]))
    return distribution(search_range)


def _shares(
    fields: Mapping[str, BaseDistribution],
    tried: Sequence[Mapping[str, object]],
    losses: Sequence[float] | np.ndarray,
    seed: int,
) -> list[float]:
    study = optuna.create_study()
    study.add_trials(
        [
            create_trial(
                state=TrialState.COMPLETE,
                value=float(loss),
                params={name: setting[name] for name in fields},
                distributions=dict(fields),
            )
            for setting, loss in zip(tried, losses, strict=True)
        ]
    )
    forest = FanovaImportanceEvaluator(n_trees=TREES, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # for `normalize`
        shares = get_param_importances(
            study, evaluator=forest, params=list(fields), normalize=False
        )
    return [shares[name] for name in fields]
