"""The planner of a study: which run starts next, which runs continue, when the study is done.

A planner is built from the study store each time a sweep starts; it saves no state of its own. It
does not know Ray: the dispatcher requests runs from it, and reports every epoch and every end.

Points are independent of each other. Within a point, a generation of settings starts when the
generation before it has ended, and the confirm stage starts after the last (`point_planner.py`).
"""

from collections.abc import Collection, Iterator, Sequence

from lmzoo.data.corpus import Corpus
from lmzoo.sweep.planned_run import PlannedRun
from lmzoo.sweep.point_planner import PointPlanner
from lmzoo.sweep.resolve import ResolvedPoint
from lmzoo.sweep.study import Study
from lmzoo.sweep.study_json import study_json
from lmzoo.sweep.study_store import StudyStore


class Planner:
    """Plans the runs of a study's `points`, all of which `study.json` lists.

    Only the baselines and the points with a label in `needed` are trained; None trains all points.
    """

    def __init__(
        self,
        study: Study,
        points: Sequence[ResolvedPoint],
        corpus: Corpus,
        store: StudyStore,
        needed: Collection[str] | None = None,
    ) -> None:
        self.study, self.store = study, store
        self._all_points = [PointPlanner(study, point, corpus, store) for point in points]
        self.points = self._all_points
        if needed is not None:
            self.points = [p for p in self.points if p.point.baseline or p.point.labels & {*needed}]
        self._point_of_run: dict[str, PointPlanner] = {}
        self.write_study()

    def start_next(self) -> PlannedRun | None:
        """Start and return the next run; None if no run can start now."""
        ready = self.ready()
        return self.start(ready[0]) if ready else None

    def ready(self) -> list[PlannedRun]:
        """Return the runs that can start now, in the order in which they should start.

        The order alternates between the points; a point with fewer started runs comes first.
        """
        points = sorted((p for p in self.points if p.ready), key=lambda p: p.started_count)
        longest = max((len(point.ready) for point in points), default=0)
        return [p.ready[i] for i in range(longest) for p in points if i < len(p.ready)]

    def start(self, run: PlannedRun) -> PlannedRun:
        """Mark a ready run as running and create its folder."""
        point = next(point for point in self.points if point.runs.get(run.id) is run)
        self._point_of_run[run.id] = point
        return point.start(run)

    def requeue(self, run_id: str) -> None:
        """Mark a running run as ready again."""
        self._point_of_run[run_id].requeue(run_id)

    @property
    def done(self) -> bool:
        """True if no run is ready or running."""
        return not any(point.ready or point.running for point in self.points)

    def report(self, run_id: str, epoch: int, loss: float | None) -> bool:
        """Record an epoch's validation loss; return False if the run is pruned."""
        return self._point_of_run[run_id].report(run_id, epoch, loss)

    def end(self, run_id: str, *, failed: str = "") -> PlannedRun:
        """Record the end of a running run; `failed` is the reason of a failure, else ""."""
        point = self._point_of_run[run_id]
        best_before = point.best_setting
        run = point.end(run_id, failed=failed)
        if point.best_setting is not best_before:
            self.write_study()
        return run

    def write_failures(self) -> None:
        """Write the end events of failed runs; call it only after a sweep that completed.

        In an interrupted sweep, a run may have failed because of the interruption.
        """
        for point in self.points:
            point.write_failures()

    def pending(self) -> Iterator[tuple[PointPlanner, int, int]]:
        """Yield (point, runs, epochs): upper bounds on the work left for each unfinished point."""
        for point in self.points:
            runs, epochs = point.pending()
            if runs:
                yield point, runs, epochs

    def write_study(self) -> None:
        """Write `study.json`, with the best settings found so far."""
        self.store.write_study(study_json(self.study, self._all_points))
