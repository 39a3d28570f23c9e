"""Write a study's tune runs to a file of Optuna, for optuna-dashboard and Optuna's plots.

    FILE.db, FILE.sqlite3       SQLite
    FILE.journal, FILE.log      Optuna's journal

One Optuna study holds the runs of all points, with the additional parameter `point`, so one page
shows all points. A trial has the run's validation losses as intermediate values, its state (a
pruned run is pruned, a diverged run has failed) and the name of its folder.
"""

from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from lmzoo.analysis.records.load import StudyFolder
from lmzoo.analysis.records.search_ranges import search_ranges
from lmzoo.analysis.records.tuning import TuneRuns, run_settings, validation_curves
from lmzoo.analysis.tables.importance import distribution
from lmzoo.errors import UserError

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
