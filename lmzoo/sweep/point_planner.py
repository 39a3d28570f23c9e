"""The planner of one point: tune settings, select the best one, confirm it.

With `parallel` = w, setting i is suggested and starts when the settings 0 to i-w have ended. Its
suggestion and its pruning depend on the results of these settings only. So they do not depend on
the order of execution, on deaths or on restarts, and a slow run delays only the settings that are w
or more places after it.
"""

import logging
import math
from typing import Any

from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.search_space import Choice, Range, near_bound
from lmzoo.seeding import derive_seed
from lmzoo.store.records import Record, epoch_records, find_end, records_pending
from lmzoo.sweep.asha import passes_rung, rungs
from lmzoo.sweep.planned_run import PlannedRun
from lmzoo.sweep.resolve import ResolvedPoint
from lmzoo.sweep.search import TriedSetting, suggest
from lmzoo.sweep.study import Study
from lmzoo.sweep.study_store import StudyStore

LOG = logging.getLogger("lmzoo.sweep")


class PointPlanner:
    """Tracks which runs of one point are open (ready or running) and which have ended."""

    def __init__(
        self,
        study: Study,
        point: ResolvedPoint,
        position: int,
        corpus: Corpus,
        store: StudyStore,
        runs: dict[str, PlannedRun],
    ) -> None:
        self.study, self.point, self.corpus, self.store = study, point, corpus, store
        self.samples = study.samples if point.search_space else 0
        self.parallel = study.settings_in_parallel
        self.rungs = rungs(study.grace, study.reduction, study.epochs)
        self.tune_runs: list[PlannedRun] = []
        self.confirm_runs: list[PlannedRun] = []
        self.open: dict[str, PlannedRun] = {}
        self.best_setting: dict[str, Any] | None = None
        self._position, self._runs = position, runs
        self._new: list[PlannedRun] = []
        self._ended = 0
        """Number of settings before the first one that has not ended."""
        self._advance()

    def new_runs(self) -> list[PlannedRun]:
        """Return the open runs that were planned since the last call."""
        new, self._new = self._new, []
        return new

    def report(self, run_id: str, epoch: int, loss: float | None) -> bool:
        """Add an epoch's validation loss; return False if the pruner stops the run."""
        run = self.open[run_id]
        run.add_epoch(epoch, loss)
        return run.stage != "tune" or self._passes(run, epoch)

    def end(self, run_id: str) -> None:
        """Plan the runs that waited for an open run, which has ended."""
        del self.open[run_id]
        self._advance()

    def pending(self) -> tuple[int, int]:
        """Return upper bounds on the runs and epochs left; pruning may make them fewer."""
        planned_later = self.samples - len(self.tune_runs)
        if self.best_setting is None:
            planned_later += self.study.seeds
        runs = planned_later + len(self.open)
        done = sum(run.last_epoch for run in self.open.values())
        return runs, runs * self.study.epochs - done

    def best_setting_json(self) -> dict[str, Any]:
        """Return the best setting, its confirm runs and its values at the edge of their ranges."""
        assert self.best_setting is not None
        ranges = self.point.search_space
        edge = [path for path, x in self.best_setting.items() if near_bound(x, ranges[path])]
        runs = [run.id for run in self.confirm_runs]
        return {"setting": self.best_setting, "runs": runs, "edge": edge}

    def _advance(self) -> None:
        """Plan the settings that may start, or the confirm stage if all settings have ended."""
        while True:
            first = len(self.tune_runs)
            while self._ended < first and self.tune_runs[self._ended].status:
                self._ended += 1
            indices = range(first, min(self._ended + self.parallel, self.samples))
            if not indices:
                break
            self._plan_settings(indices)
        if self._ended == self.samples and self.best_setting is None:
            self._plan_confirm_stage()

    def _plan_settings(self, indices: range) -> None:
        """Plan and store these settings; one that the model refuses has no run."""
        settings, new = self.store.settings(self.point.id), dict[int, dict[str, Any]]()
        for index in indices:
            if index not in settings:
                settings[index] = new[index] = self._suggest(index)
        refusals = {index: self._refusal(settings[index]) for index in indices}
        if all(refusals.values()) and not any(run.id for run in self.tune_runs):
            raise UserError(
                f"point {self.point.label!r}: no suggested setting is valid: "
                f"{refusals[indices[0]]}; change the search space"
            )
        if new:
            self.store.add_settings(self.point.id, new)
        seed = self.study.tune_seed
        for index, refusal in refusals.items():
            if refusal:
                self.tune_runs.append(self._refused_run(index, settings[index], refusal))
            else:
                self.tune_runs.append(self._plan_run("tune", index, settings[index], seed))

    def _refusal(self, setting: dict[str, Any]) -> str:
        """Return why the model refuses the setting; "" if it does not."""
        try:
            self.point.with_setting(setting)
        except UserError as error:
            return str(error)
        return ""

    def _refused_run(self, index: int, setting: dict[str, Any], reason: str) -> PlannedRun:
        """Return an ended run for a refused setting; the search treats it as diverged."""
        LOG.warning("%s: setting %s is not trained: %s", self.point.label, setting, reason)
        config = {"setting": dict(setting), "seed": self.study.tune_seed}
        budget = self.study.epochs
        return PlannedRun(
            "", self.point.label, "tune", index, config, budget, {}, "refused", reason
        )

    def _earlier_runs(self, index: int) -> list[PlannedRun]:
        """Return the ended runs on which the decisions about the setting `index` depend."""
        return self.tune_runs[: max(0, index - self.parallel + 1)]

    def _suggest(self, index: int) -> dict[str, Any]:
        """Return a new setting; the first one of a point is its default, if in range."""
        ranges, default = self.point.search_space, self.point.default_setting
        if index == 0 and all(_contains(bounds, default[path]) for path, bounds in ranges.items()):
            return default
        seed = derive_seed(self.study.seed, self.point.id, index)
        tried = [self._tried_setting(run) for run in self._earlier_runs(index)]
        return suggest(ranges, tried, 1, seed)[0]

    def _tried_setting(self, run: PlannedRun) -> TriedSetting:
        loss = run.best_loss if run.status in ("finished", "pruned") else None
        if loss is None:
            loss = 2 * math.log(len(self.corpus.vocabulary))  # twice the loss of a uniform guess
        return TriedSetting(run.config["setting"], loss, run.status == "pruned", run.curve)

    def _plan_confirm_stage(self) -> None:
        """Select the best finished setting and plan its confirm runs; none if none finished."""
        if self.samples:
            finished = [r for r in self.tune_runs if r.status == "finished" and r.curve]
            if not finished:
                return
            best = min(finished, key=lambda run: run.best_loss or math.inf)
            self.best_setting = dict(best.config["setting"])
        else:
            self.best_setting = {}
        for seed in self.study.confirm_seeds:
            self.confirm_runs.append(self._plan_run("confirm", seed, self.best_setting, seed))

    def _plan_run(self, stage: str, index: int, setting: dict[str, Any], seed: int) -> PlannedRun:
        """Return the run of a setting, and mark it as open unless the store shows its end."""
        config = self.point.run_config(setting, seed, self.corpus)
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
            self.open[run_id] = run
            self._new.append(run)
        return run

    def _read(self, run: PlannedRun) -> None:
        """Read the run's curve and its end, if it has ended, from the store."""
        known_runs = getattr(self.store, "known_runs", None)
        has_config = known_runs is None and self.store.run(run.id).config is not None
        run.is_new = not (has_config or (known_runs and run.id in known_runs))
        if run.is_new:
            return
        records = self.store.run(run.id).records()
        known = epoch_records(records)
        for record in known:
            # The first record always counts: the only epoch of a count model has the number of
            # the budget of the sweep that trained it.
            if record["epoch"] <= max(self.study.epochs, known[0]["epoch"]):
                run.add_epoch(record["epoch"], record["valid_token"])
        if not self._is_pending(records, test=run.stage == "confirm"):
            end = find_end(records, self.study.epochs)
            run.status = end["status"] if end else "failed"
        elif run.stage == "tune" and not self._passes(run, run.last_epoch):
            # The sweep was interrupted after this epoch and before the run was pruned.
            self.store.prune(run.id, run.last_epoch)
            run.status = "pruned"

    def _is_pending(self, records: list[Record], *, test: bool) -> bool:
        try:
            return records_pending(records, self.study.epochs, test=test)
        except UserError as error:
            raise UserError(f"point {self.point.label!r}: {error}") from None

    def _passes(self, run: PlannedRun, epoch: int) -> bool:
        """True unless the pruner stops the run at this epoch."""
        if epoch not in self.rungs or epoch not in run.curve:
            return True
        earlier = self._earlier_runs(run.index)
        losses = [other.curve[epoch] for other in earlier if epoch in other.curve]
        return passes_rung(run.curve[epoch], losses, self.study.reduction)


def _contains(bounds: Range, value: Any) -> bool:
    if isinstance(bounds, Choice):
        return value in bounds.values
    return bounds.low <= value <= bounds.high
