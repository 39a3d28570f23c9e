"""The planner of one point: tune in generations, select the best setting, confirm it."""

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
from lmzoo.train.run_config import add_model_facts

LOG = logging.getLogger("lmzoo.sweep")


class PointPlanner:
    """Tracks which runs of one point are ready, running and ended."""

    def __init__(
        self, study: Study, point: ResolvedPoint, corpus: Corpus, store: StudyStore
    ) -> None:
        self.study, self.point, self.corpus, self.store = study, point, corpus, store
        self.samples = study.samples if point.search_space else 0
        self.rungs = rungs(study.grace, study.reduction, study.epochs)
        self.runs: dict[str, PlannedRun] = {}
        self.tune_runs: list[PlannedRun] = []
        self.confirm_runs: list[PlannedRun] = []
        self.ready: list[PlannedRun] = []
        self.running: dict[str, PlannedRun] = {}
        self.started_count = 0
        self.best_setting: dict[str, Any] | None = None
        self._advance()

    def start(self, run: PlannedRun) -> PlannedRun:
        """Mark a ready run as running; create its folder and config."""
        self.ready.remove(run)
        folder = self.store.run(run.id)
        if folder.config is None:
            folder.create(add_model_facts(run.config, self.corpus.task))
        self.running[run.id] = run
        self.started_count += 1
        return run

    def report(self, run_id: str, epoch: int, loss: float | None) -> bool:
        """Record an epoch's validation loss; prune the run and return False if ASHA stops it."""
        run = self.running[run_id]
        run.add_epoch(epoch, loss)
        if run.stage == "tune" and epoch in self.rungs and not self._passes(run, epoch):
            self.store.prune(run.id, epoch)
            return False
        return True

    def end(self, run_id: str, *, failed: str = "") -> PlannedRun:
        """Record the end of a running run; plan the runs that waited for it."""
        run = self.running.pop(run_id)
        if failed:
            run.status, run.reason = "failed", failed
        else:
            self._read_end(run, self.store.run(run.id).records())
        self._advance()
        return run

    def requeue(self, run_id: str) -> None:
        """Mark a running run as ready again."""
        self.ready.append(self.running.pop(run_id))

    def write_failures(self) -> None:
        """Write the end events of failed runs; see `Planner.write_failures`."""
        for run in self.runs.values():
            if run.reason:
                end = {"event": "end", "epoch": run.last_epoch, "status": "failed"}
                self.store.run(run.id).append({**end, "reason": run.reason})

    def pending(self) -> tuple[int, int]:
        """Return upper bounds on the runs and epochs left; pruning may make them fewer."""
        planned_later = self.samples - len(self.tune_runs)
        if self.best_setting is None:
            planned_later += self.study.seeds
        open_runs = [*self.ready, *self.running.values()]
        runs = planned_later + len(open_runs)
        return runs, runs * self.study.epochs - sum(run.last_epoch for run in open_runs)

    def best_setting_json(self) -> dict[str, Any]:
        """Return the best setting, its confirm runs and its values at the edge of their ranges."""
        assert self.best_setting is not None
        ranges = self.point.search_space
        edge = [path for path, x in self.best_setting.items() if near_bound(x, ranges[path])]
        runs = [run.id for run in self.confirm_runs]
        return {"setting": self.best_setting, "runs": runs, "edge": edge}

    def _advance(self) -> None:
        """Plan the next generation or the confirm stage if no run is ready or running."""
        while not self.ready and not self.running and self.best_setting is None:
            if len(self.tune_runs) < self.samples:
                self._plan_generation()
            else:
                self._plan_confirm_stage()
                return

    def _plan_generation(self) -> None:
        """Plan and store the next settings; one that the model refuses has no run."""
        start = len(self.tune_runs)
        indices = range(start, min(start + self.study.generation, self.samples))
        settings, new = self.store.settings(self.point.id), dict[int, dict[str, Any]]()
        if any(index not in settings for index in indices):
            suggested = enumerate(self._suggest(start, len(indices)), start)
            new = {index: setting for index, setting in suggested if index not in settings}
            settings |= new
        refusals = {index: self._refusal(settings[index]) for index in indices}
        if all(refusals.values()) and not any(run.id for run in self.tune_runs):
            raise UserError(
                f"point {self.point.label!r}: no suggested setting is valid: {refusals[start]}; "
                "change the search space"
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

    def _suggest(self, start: int, count: int) -> list[dict[str, Any]]:
        """Return `count` settings; the first one of a point is its default, if in range."""
        ranges, default = self.point.search_space, self.point.default_setting
        seed = derive_seed(self.study.seed, self.point.id, start)
        tried = [self._tried_setting(run) for run in self.tune_runs]
        settings = suggest(ranges, tried, count, seed)
        in_range = all(_contains(bounds, default[path]) for path, bounds in ranges.items())
        return [default, *settings[: count - 1]] if start == 0 and in_range else settings

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
        """Return the run of a setting, and mark it as ready unless the store shows its end."""
        config = self.point.run_config(setting, seed, self.corpus)
        labels = {
            "study": self.study.name,
            "point": {"id": self.point.id, "label": self.point.label},
            "stage": stage,
            "setting": dict(setting),
        }
        run_id = config["run"]
        if run_id in self.runs:  # two samples have the same setting
            return self.runs[run_id]
        config |= labels
        run = PlannedRun(run_id, self.point.label, stage, index, config, self.study.epochs)
        self.runs[run_id] = run
        records = self.store.run(run_id).records()
        self._read_curve(run, records)
        if not self._is_pending(records, test=stage == "confirm"):
            self._read_end(run, records)
        elif not self._prune_at_last_rung(run):
            self.ready.append(run)
        return run

    def _is_pending(self, records: list[Record], *, test: bool) -> bool:
        try:
            return records_pending(records, self.study.epochs, test=test)
        except UserError as error:
            raise UserError(f"point {self.point.label!r}: {error}") from None

    def _prune_at_last_rung(self, run: PlannedRun) -> bool:
        """Prune a run if the sweep was interrupted after its last epoch and before ASHA."""
        last = run.last_epoch
        if run.stage != "tune" or last not in self.rungs or self._passes(run, last):
            return False
        self.store.prune(run.id, last)
        run.status = "pruned"
        return True

    def _passes(self, run: PlannedRun, rung: int) -> bool:
        """True if the run passes the rung, compared with the runs of earlier generations."""
        if rung not in run.curve:
            return True
        generation = run.index // self.study.generation
        earlier = self.tune_runs[: generation * self.study.generation]
        losses = [other.curve[rung] for other in earlier if rung in other.curve]
        return passes_rung(run.curve[rung], losses, self.study.reduction)

    def _read_end(self, run: PlannedRun, records: list[Record]) -> None:
        end = find_end(records, self.study.epochs)
        run.status = end["status"] if end else "failed"
        self._read_curve(run, records)

    def _read_curve(self, run: PlannedRun, records: list[Record]) -> None:
        """Add the stored epochs within the budget to the run's curve."""
        known = epoch_records(records)
        for record in known:
            # The first record always counts: the only epoch of a count model has the number of
            # the budget of the sweep that trained it.
            if record["epoch"] <= max(self.study.epochs, known[0]["epoch"]):
                run.add_epoch(record["epoch"], record["valid_token"])


def _contains(bounds: Range, value: Any) -> bool:
    if isinstance(bounds, Choice):
        return value in bounds.values
    return bounds.low <= value <= bounds.high
