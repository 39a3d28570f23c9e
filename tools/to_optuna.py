"""Write the tune runs of a study as an Optuna study, for optuna-dashboard and Optuna's plots.

    python tools/to_optuna.py gru_ablation tuned.db && optuna-dashboard sqlite:///tuned.db

    FILE.db, FILE.sqlite3       SQLite
    FILE.journal, FILE.log      Optuna's journal

One Optuna study holds the runs of all points; the point is an attribute of a trial, as it is chosen
by nobody. A trial has the run's validation losses as intermediate values, its state (a pruned run
is pruned, a diverged run has failed), the name of its folder, and its times: it ended at the time
of its end, and began as many seconds before as its epochs took. Trials have this order. Ends of
earlier versions have no time: 1970.
"""

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import optuna
import polars as pl
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.base.restored import quiet
from lmzoo.base.streams import echo
from lmzoo.lab.analysis.load import Range, StudyFolder, is_maximized, load_study, search_ranges
from lmzoo.lab.store.records import find_study

UNKNOWN = "1970-01-01T00:00:00+00:00"
"""Time of an end of an earlier version, which has none; Optuna needs one."""
STATES = {
    "finished": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "diverged": TrialState.FAIL,
    "failed": TrialState.FAIL,
}


def export_to_optuna(folder: StudyFolder, path: Path) -> int:
    """Write the tune runs that have ended; return how many.

    A `UserError` says that the file exists, or that no tune run has ended.
    """
    if path.exists():
        raise UserError(f"{path} exists; remove it, or give another file")
    trials = _trials(folder)
    if not trials:
        raise UserError(f"study {folder.study['name']!r}: no tune run has ended; run the sweep")
    name = folder.study["name"]
    with quiet("optuna"):
        study = optuna.create_study(
            study_name=name, storage=_storage(path),
            direction="maximize" if is_maximized(folder.study) else "minimize",
        )  # fmt: skip
    study.set_user_attr("question", folder.study["question"])
    study.add_trials(trials)
    return len(trials)


def _trials(folder: StudyFolder) -> list[FrozenTrial]:
    names = {point["id"]: point["label"] for point in folder.study["points"]}
    epochs = folder.events.filter(pl.col("event") == "epoch").drop_nulls("valid_token")
    curves: dict[str, dict[int, float]] = {}
    seconds: Counter[str] = Counter()
    known = epochs.select("run", "epoch", "valid_token", "seconds").collect()
    for run, epoch, loss, taken in known.iter_rows():
        curves.setdefault(run, {})[epoch] = loss
        seconds[run] += taken or 0.0  # type: ignore[assignment]
    tuned = folder.runs.filter(
        (pl.col("stage") == "tune") & pl.col("status").is_not_null() & pl.col("point").is_in(names)
    )
    runs = tuned.sort("time", "point", "run", nulls_last=True).collect().to_dicts()
    settings = [json.loads(run["setting"]) for run in runs]
    search = search_ranges(folder.study, settings)
    distributions = {name: _distribution(search_range) for name, search_range in search.items()}
    best = max if is_maximized(folder.study) else min
    trials = []
    for run, setting in zip(runs, settings, strict=True):
        state, curve = STATES[run["status"]], curves.get(run["run"], {})
        facts = {name: run[name] for name in ("run", "seed", "status")}
        trial = create_trial(
            state=state,
            value=best(curve.values()) if state is TrialState.COMPLETE else None,
            params=setting,
            distributions={name: distributions[name] for name in setting},
            intermediate_values=curve,
            user_attrs={"point": names[run["point"]], **facts},
        )
        ended = datetime.fromisoformat(run["time"] or UNKNOWN).astimezone().replace(tzinfo=None)
        trial.datetime_complete = ended
        trial.datetime_start = ended - timedelta(seconds=seconds[run["run"]])
        trials.append(trial)
    return trials


def _distribution(search_range: Range) -> BaseDistribution:
    if "values" in search_range:
        return CategoricalDistribution(search_range["values"])
    low, high = search_range["low"], search_range["high"]
    kind = IntDistribution if isinstance(low, int) and isinstance(high, int) else FloatDistribution
    return kind(low, high, log=search_range["log"])


def _storage(path: Path) -> BaseStorage:
    if path.suffix in (".db", ".sqlite3"):
        return RDBStorage(f"sqlite:///{path.resolve()}")
    return JournalStorage(JournalFileBackend(str(path)))


def main(study: str, file: Path) -> None:
    """Write the file, which must not be there yet, and print the number of runs."""
    count = export_to_optuna(load_study(find_study(study)), file)
    echo(f"{file}: {count} tune runs")


if __name__ == "__main__":
    run_command(main)
