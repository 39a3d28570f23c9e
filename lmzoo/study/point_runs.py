"""The runs of one point: which are open (ready or running), and what the store knows of them."""

import logging
from typing import Any

from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.functional.seeding import derive_seed
from lmzoo.store.records import epoch_records, find_end, records_pending
from lmzoo.study.planned_run import PlannedRun
from lmzoo.study.resolve import ResolvedPoint
from lmzoo.study.search import Setting
from lmzoo.study.study import Study
from lmzoo.study.study_store import StudyStore

LOG = logging.getLogger("lmzoo.sweep")
FIRST_TUNE_SEED = 1_000_000_000
"""Tune seeds start here, so that no confirm run has the seed of a tune run."""


class PointRuns:
    """Makes the runs of a point and reads their records from the store."""

    def __init__(
        self,
        study: Study,
        point: ResolvedPoint,
        position: int,
        corpus: Corpus,
        store: StudyStore,
        runs: dict[str, PlannedRun],
    ) -> None:
        """`runs` are all runs of the study: a run of two points is trained once."""
        self.study, self.point, self.corpus, self.store = study, point, corpus, store
        self.tune_runs: list[PlannedRun] = []
        self.confirm_runs: list[PlannedRun] = []
        self.open: dict[str, PlannedRun] = {}
        self._position, self._runs = position, runs
        self._new: list[PlannedRun] = []
        # Each point has its own: the luck of one seed must not favour the same points everywhere.
        self.tune_seed = FIRST_TUNE_SEED + derive_seed(study.seed, point.id) % FIRST_TUNE_SEED

    def new_runs(self) -> list[PlannedRun]:
        """Return the open runs that were planned since the last call."""
        new, self._new = self._new, []
        return new

    def plan_tune_run(self, index: int, setting: Setting) -> None:
        """Plan the run of a setting; one that the model refuses has ended without training."""
        try:
            config = self.point.run_config(setting, self.tune_seed, self.corpus)
        except UserError as error:
            LOG.warning(
                "%s: setting %s is not trained: %s", self.point.display_label, setting, error
            )
            run = PlannedRun("", self.point.label, "tune", index, {"setting": setting}, 0)
            run.status, run.reason = "refused", str(error)
        else:
            run = self._plan("tune", index, setting, config)
        self.tune_runs.append(run)

    def plan_confirm_runs(self, setting: Setting, count: int) -> int:
        """Plan runs of the best setting until there are `count`; return how many are new."""
        seeds = self.study.confirm_seeds(count)[len(self.confirm_runs) :]
        for seed in seeds:
            config = self.point.run_config(setting, seed, self.corpus)
            self.confirm_runs.append(self._plan("confirm", seed, setting, config))
        return len(seeds)

    def open_run(self, run: PlannedRun) -> None:
        """Mark a run as open."""
        self.open[run.id] = run
        self._new.append(run)

    def close_run(self, run: PlannedRun) -> None:
        """Mark a run as not open."""
        if self.open.pop(run.id, None) and run in self._new:
            self._new.remove(run)

    def _plan(self, stage: str, index: int, setting: Setting, config: dict[str, Any]) -> PlannedRun:
        """Return the run of a config, open unless the store shows its end."""
        run_id = config["run"]
        if run_id in self._runs:  # two samples, or two points, have the same setting
            run = self._runs[run_id]
        else:
            config |= {
                "study": self.study.name,
                "point": {"id": self.point.id, "label": self.point.label},
                "stage": stage,
                "setting": dict(setting),
            }
            run = PlannedRun(run_id, self.point.label, stage, index, config, self.study.epochs)
            run.priority = (len(self.tune_runs) + len(self.confirm_runs), self._position)
            self._runs[run_id] = run
            self._read(run)
        if not run.status and run_id not in self.open:
            self.open_run(run)
        return run

    def _read(self, run: PlannedRun) -> None:
        """Read the run's curve and its end, if it has ended, from the store."""
        run.is_new = run.id not in self.store.known_runs
        if run.is_new:
            return
        records = self.store.run(run.id).records()
        known = epoch_records(records)
        for record in known:
            # The first record always counts: the only epoch of a count model has the number of
            # the budget of the sweep that trained it.
            if record["epoch"] <= max(self.study.epochs, known[0]["epoch"]):
                run.add_epoch(record["epoch"], record["valid_token"])
        try:
            pending = records_pending(records, self.study.epochs, test=run.stage == "confirm")
        except UserError as error:
            raise UserError(f"point {self.point.display_label!r}: {error}") from None
        if not pending:
            end = find_end(records, self.study.epochs)
            run.status = end["status"] if end else "failed"
        tests = [r for r in records if r["event"] == "test" and r["epoch"] == run.budget]
        run.test_loss = tests[-1]["token"] if tests else None
