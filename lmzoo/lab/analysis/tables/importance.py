r"""Importance of each searched field: functional analysis of variance with a random forest.

    loss(θ) − mean of the point = Σ_i f_i(θ_i) + Σ_{i<j} f_ij(θ_i, θ_j) + ...
    share of field i = Var f_i / Var loss                 of a regression forest's prediction

The losses are centred by point, because the question is about settings, not about points. A field
searched on a log scale is log-transformed. The shares need not sum to one; the rest is
interactions. Intervals are percentiles over points resampled with replacement, each with its runs;
they are null for fewer than five points. A forest finds shares in pure noise, too: `chance` is the
share that a field exceeds in 5 % of permutations of the losses within points.

The tune runs can be exported for optuna-dashboard and Optuna's plots:

    FILE.db, FILE.sqlite3       SQLite
    FILE.journal, FILE.log      Optuna's journal

One Optuna study holds the runs of all points, with the additional parameter `point`. A trial has
the run's validation losses as intermediate values, its state (a pruned run is pruned, a diverged
run has failed) and the name of its folder.

Hutter, Hoos & Leyton-Brown 2014 (fANOVA); the forest is Optuna's.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

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
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from lmzoo.base.errors import UserError, writing
from lmzoo.lab.analysis.records.load import StudyFolder, load_study
from lmzoo.lab.analysis.records.tuning import (
    Range,
    TuneRuns,
    read_tune_runs,
    run_settings,
    search_ranges,
    validation_curves,
    variance_between_points,
)
from lmzoo.lab.analysis.tables.columns import shown_columns, text_table
from lmzoo.lab.analysis.text.formatting import format_number, status_counts
from lmzoo.lab.analysis.text.render import Report

optuna.logging.set_verbosity(optuna.logging.WARNING)

MIN_POINTS = 5
"""Least number of points for an interval."""
MIN_RUNS = 8
TREES = 32


def importance_shares(
    tuning: TuneRuns, search: Mapping[str, Range], *, resamples: int = 20, seed: int = 0
) -> pl.DataFrame:
    """Return field, share, low, high, chance; the largest share first.

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
    null = []
    for index in range(resamples):
        shuffled = losses.copy()
        for group in groups:
            shuffled[group] = random.permutation(losses[group])
        null.append(_shares(fields, tried, shuffled, seed + index + 1))
    chance = np.quantile(null, 0.95, axis=0) if null else [None] * len(fields)
    no_interval = [[None] * len(fields)] * 2
    ends = np.quantile(resampled, [0.025, 0.975], axis=0) if resampled else no_interval
    frame = pl.DataFrame(
        {
            **{"field": list(fields), "share": shares, "low": ends[0], "high": ends[1]},
            "chance": chance,
        },
        {"field": pl.String, **dict.fromkeys(("share", "low", "high", "chance"), pl.Float64)},
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


def study_importance(
    path: Path, *, point: str | None = None, at: int | None = None, export: Path | None = None
) -> Report:
    """Return the importance of the searched fields of the study in folder `path`.

    Args:
        path: the study's folder.
        point: label of the only point to include; None for all points.
        at: compare losses up to this epoch; None is the last that every run has reached.
        export: also write the tune runs to this file of Optuna.

    Raises:
        UserError: There are too few tune runs, or a name is unknown.
    """
    folder = load_study(path)
    tuning = read_tune_runs(folder, at, point)
    exported = None
    if export is not None:
        with writing(export):
            exported = export_to_optuna(folder, tuning, export)
    labels = set(tuning.runs["label"])
    frame = importance_shares(tuning, search_ranges(folder.study, run_settings(tuning), labels))
    columns = shown_columns("importance", "searched")
    legend = [
        *(f"{c.heading}: {c.legend}" for c in columns if c.legend),
        "share: of the variance of losses within points, explained by this field alone (fANOVA); "
        "interactions of fields explain the rest; diverged runs have no loss",
    ]
    if len(frame) == 1:
        legend.append("only one field was searched, so no other field can have a share")
    if exported is not None:
        legend.append(f"{exported} runs written to {export} as Optuna study {folder.study['name']}")
    statuses = tuning.runs["status"]
    between = format_number(variance_between_points(tuning), ".0%")
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: lowest validation loss up to epoch {tuning.epoch} of "
            f"{len(statuses)} tune runs, of which {status_counts(statuses)}",
            f"variance between points: {between} of the variance of these losses",
        ),
        tables=(text_table("searched fields", frame.to_dicts(), columns, whole=True),),
        legend=tuple(legend),
        frame=frame,
    )


optuna.logging.set_verbosity(optuna.logging.WARNING)

STATES = {
    "finished": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "diverged": TrialState.FAIL,
    "failed": TrialState.FAIL,
}


def export_to_optuna(folder: StudyFolder, tuning: TuneRuns, path: Path) -> int:
    """Write the tune runs that have ended; return their number.

    Raises:
        UserError: The file exists, or its suffix is unknown.
    """
    if path.exists():
        raise UserError(f"{path} exists; remove it, or give another file")
    storage = _storage(path)
    study = optuna.create_study(study_name=folder.study["name"], storage=storage)
    study.set_user_attr("question", folder.study["question"])
    trials = _trials(folder, tuning)
    study.add_trials(trials)
    return len(trials)


def _trials(folder: StudyFolder, tuning: TuneRuns) -> list[FrozenTrial]:
    labels = CategoricalDistribution([p["label"] for p in folder.study["points"]])
    settings = run_settings(tuning)
    search = search_ranges(folder.study, settings, set(tuning.runs["label"]))
    curves = validation_curves(folder)
    trials = []
    for row, setting in zip(tuning.runs.to_dicts(), settings, strict=True):
        if row["status"] is None:
            continue
        state, curve = STATES[row["status"]], curves.get(row["run"], {})
        trials.append(
            create_trial(
                state=state,
                value=min(curve.values()) if state is TrialState.COMPLETE else None,
                params={"point": row["label"], **setting},
                distributions={"point": labels, **{n: distribution(search[n]) for n in setting}},
                intermediate_values=curve,
                user_attrs={name: row[name] for name in ("run", "seed", "status")},
            )
        )
    return trials


def _storage(path: Path) -> BaseStorage:
    if path.suffix in (".db", ".sqlite3"):
        return RDBStorage(f"sqlite:///{path.resolve()}")
    if path.suffix in (".journal", ".log"):
        return JournalStorage(JournalFileBackend(str(path)))
    raise UserError(f"no Optuna file {path.name!r}; known: .db, .sqlite3, .journal, .log")
