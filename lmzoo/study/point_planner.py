"""The planner of one point: tune settings, confirm the best one.

The first settings are the start design. `shared_tuning.py` compares them with those of the other
points, says when further settings may start, and chooses the best setting. Decisions do not depend
on timing. With `parallel` = w, setting i starts when

    the settings 0 to i-w have ended or reached the first rung,
    the settings 0 to i-2w have ended or reached the second rung, and so on,
    and, after the last rung, the settings 0 to i-Lw have ended,

and a setting after the start design starts when the start design has ended, too. With the pruner
`response` the whole start design starts at once.

The pruner compares run i up to the k-th rung with the settings 0 to i-kw, whose losses there are
known; the sampler suggests setting i from the results of the settings 0 to i-Lw and of the start
design. So the same settings are tried and the same runs are pruned whatever the order of execution,
deaths and restarts, and a long run does not delay the start of the next one.
"""

import bisect
import math
from typing import Any

from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.functional.seeding import derive_seed
from lmzoo.search_space import near_bound
from lmzoo.study.design import SIZE, start_design
from lmzoo.study.planned_run import Answer, PlannedRun
from lmzoo.study.point_runs import PointRuns
from lmzoo.study.pruners import make_pruner, rungs, until
from lmzoo.study.resolve import ResolvedPoint
from lmzoo.study.samplers import make_sampler
from lmzoo.study.search import Result, Search, Setting
from lmzoo.study.shared_tuning import rung_epoch
from lmzoo.study.study import Study
from lmzoo.study.study_store import StudyStore


class PointPlanner(PointRuns):
    """Plans the runs of a point: the tune runs in order of the settings, then the confirm runs."""

    def __init__(
        self,
        study: Study,
        point: ResolvedPoint,
        position: int,
        corpus: Corpus,
        store: StudyStore,
        runs: dict[str, PlannedRun],
    ) -> None:
        super().__init__(study, point, position, corpus, store, runs)
        self.space, self.design = point.search_space, list[Setting]()
        self.settings: list[Setting] = []
        """The settings of the tune runs."""
        self.best_setting: Setting | None = None
        self.tuning_sd = 0.0
        """Standard deviation of the loss between repetitions of the tuning, in nats per token."""
        self.samples, self.rung = 0, 0
        self._design_ended = False
        if not self.space:
            self._confirm({})
            return
        self.design = start_design(self.space, point.default_setting, study.samples, study.seed)
        by_design = study.samples <= SIZE
        self.samples = len(self.design) if by_design else study.samples
        if study.pruner == "response" and not point.closed_form:
            self.rung = rung_epoch(study.epochs)
        self.parallel = study.settings_in_parallel
        self._levels = [*rungs(study), math.inf]
        """Epochs that settings must reach, in this order; infinity is the end."""
        self._reached = [0] * len(self._levels)
        """Number of settings before the first one that has not reached the level."""
        self._lag = self.parallel * len(self._levels)
        self._pruner = make_pruner(study)
        sampler = make_sampler(study, self.space, derive_seed(study.seed, point.id))
        self._search = Search(self.space, sampler, self._lag, len(self.design))
        self._advance()

    def report(self, run_id: str, epoch: int, loss: float | None) -> Answer:
        """Add an epoch's validation loss; return what the run does next."""
        run = self.open[run_id]
        run.add_epoch(epoch, loss)
        if run.stage == "tune":
            self._advance()
        return self.answer(run, epoch)

    def end(self, run_id: str) -> None:
        """Plan the runs that waited for an open run, which has ended."""
        run = self.open.pop(run_id)
        if run.stage == "tune":
            self._advance()

    def answer(self, run: PlannedRun, epoch: int) -> Answer:
        """Return what a run does after an epoch, which is not after its last one."""
        if run.stage == "confirm" or epoch not in run.curve or epoch >= self.study.epochs:
            return Answer.CONTINUE
        in_design = run.index < len(self.design)
        if in_design and self.study.pruner == "response":
            return Answer.WAIT if self.rung and epoch >= self.rung else Answer.CONTINUE
        level = bisect.bisect_left(self._levels, epoch)
        known = max(0, run.index - self.parallel * (level + 1) + 1)
        if not in_design:
            known = max(known, len(self.design))
        earlier = (until(epoch, other.curve) for other in self.tune_runs[:known])
        prunes = self._pruner.prunes(epoch, until(epoch, run.curve), earlier)
        return Answer.PRUNE if prunes else Answer.CONTINUE

    @property
    def at_rung(self) -> bool:
        """Whether all runs of the start design have ended, have passed the rung or wait there."""
        opened = [run for run in self._design_runs if run.id in self.open]
        return not self.rung or all(run.last_epoch > self.rung for run in opened)

    @property
    def design_ended(self) -> bool:
        """Whether all runs of the start design have ended."""
        runs = self._design_runs
        return len(runs) == len(self.design) and all(run.status for run in runs)

    @property
    def tuned(self) -> bool:
        """Whether the runs of all settings have ended."""
        return len(self.tune_runs) == self.samples and all(run.status for run in self.tune_runs)

    def losses_at_rung(self) -> list[float]:
        """Return the loss of each setting of the start design at the rung; infinity if it ended."""
        return [run.curve.get(self.rung, math.inf) for run in self._design_runs]

    def losses(self) -> list[float]:
        """Return the final loss of each setting: NaN if pruned, infinity if there is none."""
        return [
            math.nan if run.status == "pruned" else self._value(run, math.inf)
            for run in self.tune_runs
        ]

    def pass_rung(self, kept: set[int]) -> list[PlannedRun]:
        """Continue the runs of these settings; prune and return those of the others."""
        rung, self.rung, pruned = self.rung, 0, []
        for index, run in enumerate(self._design_runs if rung else []):
            passed = run.last_epoch > rung  # before an interruption, or with a smaller budget
            if run.id in self.open:
                continue
            if not run.status and (passed or index in kept):
                self.open_run(run)
            elif not run.status:
                self.store.prune(run.id, rung)
                run.status = "pruned"
                pruned.append(run)
        self._advance()
        return pruned

    def end_design(self, others: list[tuple[Setting, float]]) -> None:
        """Start the settings after the start design, with these results of other points."""
        self._search.add_results(others)
        self._design_ended = True
        self._advance()

    def choose(self, index: int, tuning_sd: float) -> None:
        """Plan the confirm runs of a setting."""
        self.tuning_sd = tuning_sd
        self._confirm(self.settings[index])

    def pending(self) -> tuple[int, int]:
        """Return upper bounds on the runs and epochs left; pruning may make them fewer."""
        later = self.samples - len(self.tune_runs)
        if self.best_setting is None:
            later += self.study.seeds
        runs = [run for run in (*self.tune_runs, *self.confirm_runs) if not run.status]
        done = sum(run.last_epoch for run in runs)
        return later + len(runs), (later + len(runs)) * self.study.epochs - done

    def best_setting_json(self) -> dict[str, Any]:
        """Return the best setting, its confirm runs and its values at the edge of their ranges."""
        assert self.best_setting is not None
        edge = [path for path, x in self.best_setting.items() if near_bound(x, self.space[path])]
        runs = [run.id for run in self.confirm_runs]
        sd = float(f"{self.tuning_sd:.2g}")
        return {"setting": self.best_setting, "runs": runs, "edge": edge, "tuning_sd": sd}

    @property
    def _design_runs(self) -> list[PlannedRun]:
        return self.tune_runs[: len(self.design)]

    def _advance(self) -> None:
        """Plan the settings that may start."""
        while indices := range(len(self.tune_runs), self._count_startable()):
            self._plan_settings(indices)

    def _count_startable(self) -> int:
        """Return the number of settings, from the first one on, that may start."""
        for k, level in enumerate(self._levels):
            while (n := self._reached[k]) < len(self.tune_runs):
                if not self.tune_runs[n].status and self.tune_runs[n].last_epoch < level:
                    break
                self._reached[k] += 1
        if self.rung:
            return len(self.design)
        most = self.samples if self._design_ended else len(self.design)
        starts = (n + self.parallel * (k + 1) for k, n in enumerate(self._reached))
        return max(len(self.tune_runs), min(most, *starts))

    def _plan_settings(self, indices: range) -> None:
        """Plan and store these settings; one that the model refuses has no run."""
        settings, new = self.store.settings(self.point.id), dict[int, Setting]()
        for index in indices:
            if index not in settings:
                settings[index] = new[index] = self._suggest([settings[i] for i in range(index)])
        for index in indices:
            self.settings.append(settings[index])
            self.plan_tune_run(index, settings[index])
            # The sweep may have been interrupted after this epoch and before the run was pruned.
            run = self.tune_runs[-1]
            answer = Answer.CONTINUE if run.status else self.answer(run, run.last_epoch)
            if answer is not Answer.CONTINUE:
                self.close_run(run)
            if answer is Answer.PRUNE:
                self.store.prune(run.id, run.last_epoch)
                run.status = "pruned"
        refusals = [run.reason for run in self.tune_runs if run.status == "refused"]
        if len(refusals) == len(self.tune_runs) >= len(self.design):
            raise UserError(
                f"point {self.point.display_label!r}: no suggested setting is valid: "
                f"{refusals[0]}; "
                "change the search space"
            )
        if new:
            self.store.add_settings(self.point.id, new)

    def _suggest(self, earlier: list[Setting]) -> Setting:
        """Return the setting after `earlier`."""
        if len(earlier) < len(self.design):
            return self.design[len(earlier)]
        return self._search.suggest(earlier, self._result)

    def _result(self, index: int) -> Result:
        """Return the result of a setting that has ended."""
        run = self.tune_runs[index]
        guess = 2 * math.log(len(self.corpus.vocabulary))  # twice the loss of a uniform guess
        return Result(self._value(run, guess), run.status == "pruned", run.curve)

    def _value(self, run: PlannedRun, otherwise: float) -> float:
        """Return the lowest loss of a finished or pruned run."""
        loss = run.best_loss if run.status in ("finished", "pruned") else None
        return otherwise if loss is None else loss

    def _confirm(self, setting: Setting) -> None:
        self.best_setting = dict(setting)
        self.plan_confirm_runs(setting, self.study.seeds)
