r"""Which searched field mattered, by functional analysis of variance over a forest.

    loss(θ) − mean of the point = Σ_i f_i(θ_i) + Σ_{i<j} f_ij(θ_i, θ_j) + ...
    share of field i = Var f_i / Var loss                 of a regression forest's prediction

The losses are centred by point: points are what a study compares, settings are what is
asked about here. A field searched on a log scale varies on a log scale. Shares need not
add up to one, what is left is interactions. Intervals are percentiles over points drawn
with replacement, each with its runs; null where there are fewer than five to draw from.

Hutter, Hoos & Leyton-Brown 2014 (fANOVA); the forest is Optuna's.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

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

from lmzoo.analysis.tuning import Tuning, settings
from lmzoo.errors import UserError

optuna.logging.set_verbosity(optuna.logging.WARNING)

FEWEST = 5
"""Points, at least, from which intervals are drawn."""
TREES = 32


def shares(
    tuning: Tuning, search: Mapping[str, Any], *, resamples: int = 20, seed: int = 0
) -> pl.DataFrame:
    """field, share, low, high; the largest first.

    Raises:
        UserError: too few runs have a loss for a forest.
    """
    known = tuning.runs["centred"].is_not_null().to_numpy()
    tried = [s for s, ok in zip(settings(tuning), known, strict=True) if ok]
    losses = tuning.runs["centred"].to_numpy()[known]
    labels = tuning.runs["label"].to_numpy()[known]
    if len(tried) < 8 or np.ptp(losses) == 0:
        raise UserError(
            f"{len(tried)} tune runs with a loss do not tell fields apart; 8 or more that "
            "differ are needed: run the sweep with more --samples"
        )
    logs = {name for name in tuning.fields if search[name].get("log")}
    tried = [{n: math.log(v) if n in logs else v for n, v in one.items()} for one in tried]
    fields = {name: _even(search[name]) for name in tuning.fields}
    whole = _shares(fields, tried, losses, seed)
    drawn = []
    groups = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels)]
    random = np.random.default_rng(seed)
    for draw in range(resamples if len(groups) >= FEWEST else 0):
        chosen = random.integers(len(groups), size=len(groups))
        rows = np.concatenate([groups[g] for g in chosen])
        drawn.append(_shares(fields, [tried[r] for r in rows], losses[rows], seed + draw + 1))
    ends = np.quantile(drawn, [0.025, 0.975], axis=0) if drawn else [[None] * len(fields)] * 2
    frame = pl.DataFrame(
        {"field": list(fields), "share": whole, "low": ends[0], "high": ends[1]},
        {"field": pl.String, "share": pl.Float64, "low": pl.Float64, "high": pl.Float64},
    )
    return frame.sort("share", descending=True)


def distribution(where: Mapping[str, Any]) -> BaseDistribution:
    """A range of `study.json` in Optuna's words."""
    if "values" in where:
        return CategoricalDistribution(where["values"])
    whole = isinstance(where["low"], int) and isinstance(where["high"], int)
    kind = IntDistribution if whole else FloatDistribution
    return kind(where["low"], where["high"], log=where["log"])


def _even(where: Mapping[str, Any]) -> BaseDistribution:
    """The range as it was searched: Optuna's forest would spread a log range evenly over values."""
    if where.get("log"):
        return FloatDistribution(math.log(where["low"]), math.log(where["high"]))
    return distribution(where)


def _shares(
    fields: Mapping[str, BaseDistribution],
    tried: Sequence[Mapping[str, Any]],
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
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of `normalize`
        found = get_param_importances(study, evaluator=forest, params=list(fields), normalize=False)
    return [found[name] for name in fields]
