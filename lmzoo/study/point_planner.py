"""The planner of one point: tune settings, select the best one, confirm it.

Decisions do not depend on timing. With `parallel` = w, setting i starts when

    the settings 0 to i-w have ended or reached the first rung,
    the settings 0 to i-2w have ended or reached the second rung, and so on,
    and, after the last rung, the settings 0 to i-Lw have ended.

The pruner compares run i up to the k-th rung with the settings 0 to i-kw, whose losses there are
known; the sampler suggests setting i from the results of the settings 0 to i-Lw. So the same
settings are tried and the same runs are pruned whatever the order of execution, deaths and
restarts, and a long run does not delay the start of the next one.
"""

import bisect
import logging
import math
from typing import Any

from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.search_space import Choice, Range, near_bound
from lmzoo.seeding import derive_seed
from lmzoo.store.records import epoch_records, find_end, records_pending
from lmzoo.study.planned_run import PlannedRun
from lmzoo.study.pruners import make_pruner, rungs, until
from lmzoo.study.resolve import ResolvedPoint
from lmzoo.study.samplers import make_sampler
from lmzoo.study.search import Result, Search
from lmzoo.study.study import Study
from lmzoo.study.study_store import StudyStore

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
        self._levels = [*rungs(study), math.inf]
        """Epochs that settings must reach, in this order; infinity is the end."""
        self._reached = [0] * len(self._levels)
        """Number of settings before the first one that has not reached the level."""
        self._lag = self.parallel * len(self._levels)
        self._pruner = make_pruner(study)
        self.tune_runs: list[PlannedRun] = []
        self.confirm_runs: list[PlannedRun] = []
        self.open: dict[str, PlannedRun] = {}
        self.best_setting: dict[str, Any] | None = None
        self._position, self._runs = position, runs
        self._new: list[PlannedRun] = []
        if self.samples:
            seed = derive_seed(study.seed, point.id)
            sampler = make_sampler(study, point.search_space, seed)
            self._search = Search(point.search_space, sampler, self._lag)
        self._advance()

    def new_runs(self) -> list[PlannedRun]:
        """Return the open runs that were planned since the last call."""
        new, self._new = self._new, []
        return new

    def report(self, run_id: str, epoch: int, loss: float | None) -> bool:
        """Add an epoch's validation loss; return False if the pruner stops the run."""
        run = self.open[run_id]
        run.add_epoch(epoch, loss)
        if run.stage == "confirm":
            return True
        self._advance()
        return self._passes(run, epoch)

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
        while indices := range(len(self.tune_runs), self._count_startable()):
            self._plan_settings(indices)
        if self._reached[-1] == self.samples and self.best_setting is None:
            self._plan_confirm_stage()

    def _count_startable(self) -> int:
        """Return the number of settings, from the first one on, that may start."""
        for k, level in enumerate(self._levels):
            while (n := self._reached[k]) < len(self.tune_runs):
                if not self.tune_runs[n].status and self.tune_runs[n].last_epoch < level:
                    break
                self._reached[k] += 1
        starts = (n + self.parallel * (k + 1) for k, n in enumerate(self._reached))
        return min(self.samples, *starts)

    def _plan_settings(self, indices: range) -> None:
        """Plan and store these settings; one that the model refuses has no run."""
        settings, new = self.store.settings(self.point.id), dict[int, dict[str, Any]]()
        for index in indices:
            if index not in settings:
                settings[index] = new[index] = self._suggest([settings[i] for i in range(index)])
        configs = {index: self._config(settings[index]) for index in indices}
        refusals = [str(refusal) for refusal in configs.values() if isinstance(refusal, UserError)]
        if len(refusals) == len(indices) and not any(run.id for run in self.tune_runs):
            raise UserError(
                f"point {self.point.label!r}: no suggested setting is valid: {refusals[0]}; "
                "change the search space"
            )
        if new:
            self.store.add_settings(self.point.id, new)
        for index, config in configs.items():
            if isinstance(config, UserError):
                run = self._refused_run(index, settings[index], str(config))
            else:
                run = self._plan_run("tune", index, settings[index], config)
            self.tune_runs.append(run)

    def _config(self, setting: dict[str, Any]) -> dict[str, Any] | UserError:
        """Return the identity config of a setting's tune run, or why the model refuses it."""
        try:
            return self.point.run_config(setting, self.study.tune_seed, self.corpus)
        except UserError as error:
            return error

    def _refused_run(self, index: int, setting: dict[str, Any], reason: str) -> PlannedRun:
        """Return an ended run for a refused setting; the search treats it as diverged."""
        LOG.warning("%s: setting %s is not trained: %s", self.point.label, setting, reason)
        run = PlannedRun("", self.point.label, "tune", index, {"setting": setting}, 0)
        run.status, run.reason = "refused", reason
        return run

    def _suggest(self, earlier: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the setting after `earlier`; the first one is the point's default, if in range."""
        if not earlier:
            ranges, default = self.point.search_space, self.point.default_setting
            if all(_contains(bounds, default[path]) for path, bounds in ranges.items()):
                return default
        return self._search.suggest(earlier, self._result)

    def _result(self, index: int) -> Result:
        """Return the result of a setting that has ended."""
        run = self.tune_runs[index]
        loss = run.best_loss if run.status in ("finished", "pruned") else None
        if loss is None:
            loss = 2 * math.log(len(self.corpus.vocabulary))  # twice the loss of a uniform guess
        return Result(loss, run.status == "pruned", run.curve)

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
            config = self.point.run_config(self.best_setting, seed, self.corpus)
            self.confirm_runs.append(self._plan_run("confirm", seed, self.best_setting, config))

    def _plan_run(
        self, stage: str, index: int, setting: dict[str, Any], config: dict[str, Any]
    ) -> PlannedRun:
        """Return the run of a config, and mark it as open unless the store shows its end."""
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
            raise UserError(f"point {self.point.label!r}: {error}") from None
        if not pending:
            end = find_end(records, self.study.epochs)
            run.status = end["status"] if end else "failed"
        elif run.stage == "tune" and not self._passes(run, run.last_epoch):
            # The sweep was interrupted after this epoch and before the run was pruned.
            self.store.prune(run.id, run.last_epoch)
            run.status = "pruned"

    def _passes(self, run: PlannedRun, epoch: int) -> bool:
        """True unless the pruner stops the run at this epoch, which is before its last one."""
        if epoch not in run.curve or epoch >= self.study.epochs:
            return True
        level = bisect.bisect_left(self._levels, epoch)
        known = max(0, run.index - self.parallel * (level + 1) + 1)
        earlier = (until(epoch, other.curve) for other in self.tune_runs[:known])
        return not self._pruner.prunes(epoch, until(epoch, run.curve), earlier)


def _contains(bounds: Range, value: Any) -> bool:
    if isinstance(bounds, Choice):
        return value in bounds.values
    return bounds.low <= value <= bounds.high
