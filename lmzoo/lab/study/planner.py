"""The planner of a study: which run starts next, which runs continue, when the study is done.

A planner is built from the study store each time a sweep starts; it saves no state of its own. It
does not know Ray: the fleet requests runs from it, and reports every epoch and every end. Workers
write the run folders; the planner writes new settings and `study.json`. No call scans all points
or all runs. Points are independent of each other (`point_planner.py`).

The points are compared by the runs that have ended, which may ask for further seeds.
`lab/statistics/compared.py` gives the verdicts; the tables call it with the same losses, family
and looks. `study.json` keeps the looks, so that a study that is run again with more seeds has spent
what it has spent.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmzoo.base.environment import apart
from lmzoo.lab.statistics.compared import (
    Compared,
    Look,
    compared,
    looks,
    read_looks,
    reference_seeds,
    spend,
)
from lmzoo.lab.statistics.contrasts import unfair
from lmzoo.lab.statistics.counts import solves
from lmzoo.lab.store.user_code import UserCode
from lmzoo.lab.study.planned_run import Answer, PlannedRun
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.study.study import Study
from lmzoo.lab.study.study_json import study_json
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.study.trainable import Config, Trainable, reference_id
from lmzoo.lab.study.tuning import SharedTuning


class ComparedPoint(NamedTuple):
    """A point that further runs may decide, and its row in the comparison."""

    point: PointPlanner
    found: Compared
    row: int


class Planner:
    """Plans the runs of a study's `points`, all of which `study.json` lists.

    Only the baselines and the points with a label in `needed` are trained; None trains all points.
    """

    def __init__(
        self,
        study: Study,
        points: Sequence[Trainable],
        store: StudyStore,
        needed: Collection[str] | None = None,
    ):
        self.study = study
        self.store = store
        self.failed_runs: list[PlannedRun] = []
        self._runs: dict[str, PlannedRun] = {}
        """All planned runs; a run of two points is trained once."""
        self._ready: dict[str, PlannedRun] = {}
        self._new: dict[str, PlannedRun] = {}
        """The ready runs that `new_ready` has not returned."""
        self._points: dict[str, list[PointPlanner]] = {}
        """Identity of a ready or running run -> its points; the first one judges it."""
        self._pruned: list[PlannedRun] = []
        """Runs that were pruned and that `new_pruned` has not returned."""
        self._reference = reference_id(study, points)
        # Read first, because `write_study` replaces it.
        before = store.study()
        # The reference is no contrast.
        self._contrasts = sum(not point.baseline for point in points) - 1
        self._all_points: list[PointPlanner] = []
        for position, point in enumerate(points):
            seeds = study.seeds
            if point.id == self._reference:
                seeds = reference_seeds(study.seeds, self._contrasts)
            planner = PointPlanner(study, point, position, store, self._runs, seeds)
            self._all_points.append(planner)
        self.points = self._all_points
        if needed is not None:
            wanted = set(needed)
            self.points = [p for p in self.points if p.point.baseline or p.point.labels & wanted]
        for planner in self.points:
            self._add_planned(planner)
        # A point that is not trained may still inform the fit, if it is tuned already.
        self._needed = set(self.points)
        self._tuning = self._groups()
        for group in dict.fromkeys(self._tuning.values()):
            self._decide(group.points[0])
        # Last, because a look counts the confirm runs that the decisions have planned.
        self.looks = plan_looks(study, before, self.reference, self._contrasts)
        self._look()
        self.write_study()

    def _groups(self) -> dict[PointPlanner, SharedTuning]:
        """Return the points that are tuned, and those that were, with their group."""
        alike: dict[str, list[PointPlanner]] = {}
        for planner in self._all_points:
            if planner.space and (planner in self._needed or planner.tuned):
                # The repr, because a choice may have values that JSON does not know.
                space = json.dumps([repr(planner.space), planner.design])
                alike.setdefault(space, []).append(planner)
        groups: dict[PointPlanner, SharedTuning] = {}
        for planners in alike.values():
            groups |= dict.fromkeys(planners, SharedTuning(planners))
        return groups

    @property
    def reference(self) -> PointPlanner:
        """The point that the others are compared with."""
        return next(p for p in self._all_points if p.point.id == self._reference)

    @property
    def code(self) -> UserCode:
        """The code of all points that is outside the package."""
        code = UserCode()
        for planner in self._all_points:
            code |= planner.point.code
        return code

    def ready(self) -> list[PlannedRun]:
        """Return the runs that can start now, in order of priority."""
        return sorted(self._ready.values(), key=lambda run: run.priority)

    def new_ready(self) -> list[PlannedRun]:
        """Return the runs that became ready since the last call, in order of priority."""
        # The caller knows the others, and sorting all at each call takes long.
        runs = sorted(self._new.values(), key=lambda run: run.priority)
        self._new.clear()
        return runs

    def new_pruned(self) -> list[PlannedRun]:
        """Return the runs that were pruned, while no worker had them, since the last call."""
        runs = self._pruned
        self._pruned = []
        return runs

    def find(self, run_id: str) -> PlannedRun | None:
        return self._runs.get(run_id)

    def start(self, run: PlannedRun):
        del self._ready[run.id]
        self._new.pop(run.id, None)

    def requeue(self, run_id: str, *, saved: bool = False):
        """Mark a running run as ready again; a `saved` one waits if it has to wait at its epoch.

        Its worker may have created its folder, and have died before it wrote the epoch.
        """
        run = self._runs[run_id]
        points = self._points[run_id]
        # The folder may be there now.
        run.is_new = False
        if not saved or points[0].answer(run, run.last_epoch) is not Answer.WAIT:
            self._ready[run_id] = self._new[run_id] = run
            return
        # It is closed until the others are there, too.
        del self._points[run_id]
        for point in points:
            point.mark_closed(run)
        decided = self._decide(points[0])
        left_out = self._leave_out_failed()
        if decided or left_out:
            self.write_study()

    @property
    def done(self) -> bool:
        """True if no run is ready or running."""
        return not self._points

    def report(self, run_id: str, record: Mapping[str, Any]) -> Answer:
        """Add an `epoch` event to the run's curve; return what the run does next.

        The same event may be reported again, and gets the same answer.
        """
        run = self._runs[run_id]
        epoch = record["epoch"]
        run.repeats = 0
        if epoch < run.last_epoch:  # it started over
            run.repeats = epoch
        answers = []
        # A run of two points informs both; the first one decides.
        for point in self._points[run_id]:
            answers.append(point.report(run_id, epoch, record["valid_token"]))
            self._add_planned(point)
        return answers[0]

    def end(
        self,
        run_id: str,
        status: str,
        reason: str = "",
        test_loss: float | None = None,
        test_accuracy: float | None = None,
    ) -> PlannedRun:
        """Record the end of a running run, and plan the runs that waited for it.

        The worker has written the `end` event, unless the status is "failed".
        """
        run = self._runs[run_id]
        run.status = status
        run.reason = reason
        run.test_loss = test_loss
        run.test_accuracy = test_accuracy
        if status == "failed":
            # A failure is missing data: it is planned again by the next sweep.
            run.add_failure(reason, run.nodes)
            self.failed_runs.append(run)
        else:
            self.store.end_run(run_id)
        decided = False
        for point in self._points.pop(run_id):
            point.end(run_id)
            self._add_planned(point)
            if run.stage == "tune" and self._decide(point):
                decided = True
        # When nothing runs any more, a point that waits would wait for ever.
        left_out = self._leave_out_failed()
        # Last, because a look waits for all other decisions.
        looked = self._look()
        if decided or left_out or looked:
            self.write_study()
        return run

    def write_failures(self):
        """Write the end events of failed runs; call it only after a sweep that completed.

        In an interrupted sweep, a run may have failed because of the interruption.
        """
        for run in self.failed_runs:
            record = {
                "event": "end",
                "epoch": run.last_epoch,
                "status": "failed",
                "reason": run.reason,
                "nodes": run.nodes,
            }
            self.store.run(run.id).append(record)

    def pending(self) -> Iterator[tuple[PointPlanner, int, int]]:
        """Yield (point, runs, epochs): upper bounds on the work left for each unfinished point."""
        for point in self.points:
            runs, epochs = point.pending()
            if runs:
                yield point, runs, epochs

    def write_study(self):
        """Write `study.json`, with the best settings found so far."""
        study = study_json(self.study, self._all_points, self.looks)
        self.store.write_study(study)

    def _decide(self, point: PointPlanner) -> bool:
        """Make the decisions of a point's group that are due; return whether there was one."""
        tuning = self._tuning[point]
        decided = False
        while True:
            is_due, pruned = tuning.advance()
            if not is_due:
                return decided
            decided = True
            self._pruned += pruned
            for other in self._needed.intersection(tuning.points):
                self._add_planned(other)

    def _leave_out_failed(self) -> bool:
        """Go on without the points that failed if the others wait; return whether they decided."""
        if not self.done:
            return False
        decided = False
        for group in dict.fromkeys(self._tuning.values()):
            if group.leave_out_failed() and self._decide(group.points[0]):
                decided = True
        return decided

    def _look(self) -> bool:
        """Plan further runs when all planned runs have ended; return whether there are any."""
        planned = False
        while self.done:
            rows = comparable(self.study, self.points, self._reference, self.looks)
            # Settings first: seeds of a setting that is given up are lost.
            # All further runs may be in the store already: then look again.
            if not self._tune_further(rows) and not plan_more_seeds(rows):
                break
            planned = True
            for point in self.points:
                self._add_planned(point)
        return planned

    def _tune_further(self, rows: Sequence[ComparedPoint]) -> bool:
        """With --until-decided, plan settings of uncertain choices; return if there are any."""
        most = self.study.max_seeds
        if most <= self.study.seeds:
            return False
        uncertain = uncertain_choices(rows, self.reference)
        found = False
        for group in dict.fromkeys(self._tuning.values()):
            if group.tune_further(uncertain, most):
                found = True
                self._decide(group.points[0])
        return found

    def _add_planned(self, point: PointPlanner):
        """Mark the runs that the point has just planned as ready."""
        for run in point.new_runs():
            # Another point may have planned the same run.
            if run.id not in self._points:
                self._ready[run.id] = self._new[run.id] = run
            self._points.setdefault(run.id, []).append(point)


def plan_looks(
    study: Study, before: Config, reference: PointPlanner, contrasts: int
) -> tuple[Look, ...]:
    """Return the looks of a study: those made before, and those of its number of seeds.

    `before` is the content of `study.json` before, {} for a new study; a look at which the runs of
    the reference have not ended was not made. `contrasts`, k, decides how many seeds the reference
    has at the looks to come.
    """
    made: tuple[Look, ...] = ()
    if before:
        ended = sum(bool(run.status) for run in reference.confirm_runs[: study.seeds])
        known = read_looks(before.get("looks"), before["budget"]["seeds"])
        for look in known:
            # The look waits for runs of the reference: nothing was spent.
            if ended < look.seeds <= study.seeds:
                break
            made += (look,)
    # Without --until-decided there is one look.
    most = max(study.max_seeds, study.seeds)
    return spend(looks(study.seeds, most), made, contrasts)


def comparison(
    points: Mapping[PointPlanner, Config],
    reference: PointPlanner,
    study_looks: Sequence[Look],
    margin: float,
) -> tuple[list[PointPlanner], Compared]:
    """Return the points with the reference's kind of score, and their comparison.

    A look that needs runs which have not ended decides nothing.
    """
    # A bound and an exact loss are no numbers of one kind.
    score = points[reference]["score"]
    alike = [p for p, facts in points.items() if facts["score"] == score and p.confirm_runs]
    place = alike.index(reference)
    architectures = [p.point.architecture for p in alike]
    rivals = unfair(architectures, [p.is_tuned for p in alike], place)
    # A point that sees what it predicts, or that nobody asked for, has no verdict.
    honest = np.ones(len(alike), bool)
    for number, p in enumerate(alike):
        if points[p]["leaks"] or p.point.baseline:
            honest[number] = False
    found = compared(
        _losses(alike),
        place,
        family=honest & ~rivals,
        silent=honest & rivals,
        tuning_sd=[p.tuning_sd for p in alike],
        looks=study_looks,
        margin=margin,
        ended=[len(p.confirm_runs) for p in alike],
    )
    return alike, found


def comparable(
    study: Study, points: Sequence[PointPlanner], reference_id: str, study_looks: Sequence[Look]
) -> list[ComparedPoint]:
    """Compare the points; return those that further runs may decide.

    All planned runs have ended.
    """
    reference = next((p for p in points if p.point.id == reference_id), None)
    if reference is None or not reference.confirm_runs:
        return []
    facts = {point: point.point.facts() for point in points}
    alike, found = comparison(facts, reference, study_looks, study.margin)
    unlike = _not_comparable(alike, reference)
    # Runs do not decide a difference that may be that of the machines.
    return [
        ComparedPoint(point, found, row) for row, point in enumerate(alike) if point not in unlike
    ]


def plan_more_seeds(rows: Sequence[ComparedPoint]) -> bool:
    """Plan the confirm runs that the losses ask for; return whether there are any."""
    planned = 0
    for point, found, row in rows:
        # A further setting that failed is waited for: the point may give up its setting.
        if point.is_chosen:
            setting = point.best_setting or {}
            planned += point.plan_confirm_runs(setting, int(found.seeds[row]))
    return planned > 0


def uncertain_choices(
    rows: Sequence[ComparedPoint], reference: PointPlanner
) -> Collection[PointPlanner]:
    """Return the points whose choice of a setting keeps a contrast undecided.

    Seeds do not reduce the error of a choice. Of the two choices of a contrast, the one that errs
    more counts, and the other one if it errs half as much.
    """
    uncertain = set[PointPlanner]()
    for point, found, row in rows:
        if not found.needs_tuning[row]:
            continue
        if point.tuning_sd >= reference.tuning_sd / 2:
            uncertain.add(point)
        if reference.tuning_sd >= point.tuning_sd / 2:
            uncertain.add(reference)
    return uncertain


def _not_comparable(
    points: Sequence[PointPlanner], reference: PointPlanner
) -> Collection[PointPlanner]:
    """Return the points whose runs share no environment with those of the reference.

    They have no verdict, which more seeds cannot change; `--again` trains them in one environment.
    """
    changed = reference.store.changed
    names = {name for values in changed.values() for name in values}
    environments = {}
    for point in points:
        values = {name: set[str]() for name in names}
        for run in point.confirm_runs:
            of_run = changed.get(run.id, {})
            for name in names:
                then, *_ = of_run.get(name, ("now",))
                values[name].add(then)
        environments[point.point.id] = values
    unlike = apart(environments, reference.point.id)
    return [point for point in points if point.point.id in unlike]


def _losses(points: Sequence[PointPlanner]) -> NDArray[np.float64]:
    """Return the test losses (P, S) of points that have confirm runs.

    Runs that have not solved their task are infinite, as diverged ones.
    """
    most = max(len(point.confirm_runs) for point in points)
    losses = np.full((len(points), most), math.nan)
    for row, point in zip(losses, points, strict=True):
        for place, run in enumerate(point.confirm_runs):
            row[place] = _loss(run)
            # It counts as a failure, whatever its loss is.
            if not _solves(run, point.study):
                row[place] = math.inf
    return losses


def _loss(run: PlannedRun) -> float:
    """Return the test loss: infinite if the run diverged, NaN if it failed or has not ended."""
    if run.status == "diverged":
        return math.inf
    if run.test_loss is None:
        return math.nan
    return run.test_loss


def _solves(run: PlannedRun, study: Study) -> bool:
    """Return whether a run with a test loss solves its task; True without one."""
    if run.test_loss is None:
        return True
    ceiling = run.config.get("ceiling")
    return solves(run.test_loss, run.test_accuracy, ceiling, bound=study.solved, sign=study.sign)
