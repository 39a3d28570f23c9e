"""What is owed: which run comes next, whether a run goes on, when the study is done.

The agenda is derived from the store each time a sweep starts; nothing else remembers
it. It knows no Ray: Tune asks it for jobs, reports every epoch, and says when a job has
ended. Points do not wait for each other; within a point, generation follows generation
and the confirm stage follows the last (`point_agenda.py`).
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
    """The points of a study that are to be trained, and the jobs they still owe.

    Those are the ones with a `needed` label and the floors, or all. The study's description
    keeps the others too: what they have done is not forgotten.
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
        self._all = [PointPlanner(study, point, corpus, store) for point in points]
        self.points = [
            agenda
            for agenda in self._all
            if needed is None or agenda.point.floor or not agenda.point.labels.isdisjoint(needed)
        ]
        self._by_run: dict[str, PointPlanner] = {}
        self.write()

    def next(self) -> PlannedRun | None:
        """A job to start now, or None while all that is left waits for running ones."""
        waiting = self.ready()
        return self.issue(waiting[0]) if waiting else None

    def ready(self) -> list[PlannedRun]:
        """The jobs that may start now, in the order in which they should."""
        points = sorted((point for point in self.points if point.ready), key=lambda p: p.issued)
        deepest = max((len(point.ready) for point in points), default=0)
        return [p.ready[i] for i in range(deepest) for p in points if i < len(p.ready)]

    def issue(self, job: PlannedRun) -> PlannedRun:
        """Start a ready job."""
        point = next(point for point in self.points if point.jobs.get(job.run) is job)
        self._by_run[job.run] = point
        return point.issue(job)

    def again(self, run: str) -> None:
        """A running job is ready once more."""
        self._by_run[run].again(run)

    @property
    def done(self) -> bool:
        """Whether nothing is ready and nothing runs."""
        return not any(point.ready or point.running for point in self.points)

    def report(self, run: str, epoch: int, loss: float | None) -> bool:
        """Take in an epoch's validation loss; whether the run goes on."""
        return self._by_run[run].report(run, epoch, loss)

    def end(self, run: str, *, failed: str = "") -> PlannedRun:
        """A job has ended, by itself, by `report`, or by failing."""
        point = self._by_run[run]
        before = point.chosen
        job = point.end(run, failed=failed)
        if point.chosen is not before:
            self.write()
        return job

    def write_failures(self) -> None:
        """Put down which runs failed, once it is known that the sweep itself was not stopped."""
        for point in self.points:
            point.write_failures()

    def owed(self) -> Iterator[tuple[PointPlanner, int, int]]:
        """(point, runs, epochs) still owed at most, for estimates."""
        for point in self.points:
            runs, epochs = point.owed()
            if runs:
                yield point, runs, epochs

    def write(self) -> None:
        """Put the study and what was chosen so far where tables look for it."""
        self.store.write_study(study_json(self.study, self._all))
