"""One point's share of the agenda: tune by generations, choose, confirm."""

import logging
import math
from typing import Any

from lmzoo.contract import stream
from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.search_space import Choice, on_edge
from lmzoo.store.records import Record, epoch_records, find_end, records_pending
from lmzoo.sweep.asha import passes_rung, rungs
from lmzoo.sweep.planned_run import PlannedRun
from lmzoo.sweep.resolve import ResolvedPoint
from lmzoo.sweep.search import TriedSetting, suggest
from lmzoo.sweep.study import Study
from lmzoo.sweep.study_store import StudyStore
from lmzoo.train.run import add_model_facts

LOG = logging.getLogger("lmzoo.sweep")


class PointPlanner:
    """Which of one point's runs are ready, running and done."""

    def __init__(
        self, study: Study, point: ResolvedPoint, corpus: Corpus, store: StudyStore
    ) -> None:
        self.study, self.point, self.corpus, self.store = study, point, corpus, store
        self.samples = study.samples if point.space else 0
        self.rungs = rungs(study.grace, study.reduction, study.epochs)
        self.jobs: dict[str, PlannedRun] = {}
        self.tuned: list[PlannedRun] = []
        self.confirmed: list[PlannedRun] = []
        self.ready: list[PlannedRun] = []
        self.running: dict[str, PlannedRun] = {}
        self.issued = 0
        self.chosen: dict[str, Any] | None = None
        self._advance()

    def issue(self, job: PlannedRun) -> PlannedRun:
        """Hand out a ready job; its folder and config exist from now on."""
        self.ready.remove(job)
        folder = self.store.run(job.run)
        if folder.config is None:
            folder.create(add_model_facts(job.config, self.corpus.task))
        self.running[job.run] = job
        self.issued += 1
        return job

    def report(self, run: str, epoch: int, loss: float | None) -> bool:
        """Take in an epoch; whether the run goes on."""
        job = self.running[run]
        job.take(epoch, loss)
        if job.stage == "tune" and epoch in self.rungs and not self._passes(job, epoch):
            self.store.prune(job.run, epoch)
            return False
        return True

    def end(self, run: str, *, failed: str = "") -> PlannedRun:
        """The job has ended; what depended on it may become ready."""
        job = self.running.pop(run)
        if failed:
            job.status, job.reason = "failed", failed
        else:
            self._read_end(job, self.store.run(job.run).records())
        self._advance()
        return job

    def again(self, run: str) -> None:
        """A running job is ready once more: it died in company, and may live alone."""
        self.ready.append(self.running.pop(run))

    def write_failures(self) -> None:
        """Put down what failed; a sweep that was itself stopped does not know, and must not."""
        for job in self.jobs.values():
            if job.reason:
                last = max(job.curve, default=0)
                end = {"event": "end", "epoch": last, "status": "failed", "reason": job.reason}
                self.store.run(job.run).append(end)

    def owed(self) -> tuple[int, int]:
        """Runs and epochs still to do at most (pruning may spare some)."""
        future = self.samples - len(self.tuned)
        if self.chosen is None:
            future += self.study.seeds
        open_jobs = [*self.ready, *self.running.values()]
        done = sum(max(job.curve, default=0) for job in open_jobs)
        runs = future + len(open_jobs)
        return runs, runs * self.study.epochs - done

    def chosen_entry(self) -> dict[str, Any]:
        """What was chosen, in the form of `study.json`."""
        assert self.chosen is not None
        edge = [p for p, v in self.chosen.items() if on_edge(v, self.point.space[p])]
        return {"setting": self.chosen, "runs": [j.run for j in self.confirmed], "edge": edge}

    def _advance(self) -> None:
        """Make ready whatever no longer has to wait."""
        while not self.ready and not self.running and self.chosen is None:
            if len(self.tuned) < self.samples:
                self._next_generation()
            else:
                self._choose()
                return

    def _next_generation(self) -> None:
        """Ready the next settings, written down; one that is no model is tried without a run."""
        start = len(self.tuned)
        numbers = range(start, min(start + self.study.generation, self.samples))
        known, new = self.store.settings(self.point.id), dict[int, dict[str, Any]]()
        if any(index not in known for index in numbers):
            suggested = enumerate(self._suggest(start, len(numbers)), start)
            new = {index: setting for index, setting in suggested if index not in known}
            known |= new
        refusals = {index: self._refusal(known[index]) for index in numbers}
        if all(refusals.values()) and not any(job.run for job in self.tuned):
            raise UserError(f"point {self.point.label!r}: {refusals[start]}; search elsewhere")
        if new:
            self.store.add_settings(self.point.id, new)
        for index, refusal in refusals.items():
            if refusal:
                self.tuned.append(self._refused(index, known[index], refusal))
            else:
                self.tuned.append(self._job("tune", index, known[index], self.study.tune_seed))

    def _refusal(self, setting: dict[str, Any]) -> str:
        """Why the point can not have this setting; '' if it can."""
        try:
            self.point.with_setting(setting)
        except UserError as error:
            return str(error)
        return ""

    def _refused(self, index: int, setting: dict[str, Any], reason: str) -> PlannedRun:
        """What has ended before it began; the search takes it for one that diverged."""
        LOG.warning("%s: %s is not trained: %s", self.point.label, setting, reason)
        config = {"setting": dict(setting), "seed": self.study.tune_seed}
        budget = self.study.epochs
        return PlannedRun(
            "", self.point.label, "tune", index, config, budget, {}, "refused", reason
        )

    def _suggest(self, start: int, size: int) -> list[dict[str, Any]]:
        space, default = self.point.space, self.point.default
        seed = stream(self.study.seed, self.point.id, start)
        settings = suggest(space, [self._tried(job) for job in self.tuned], size, seed)
        inside = all(_contains(where, default[path]) for path, where in space.items())
        return [default, *settings[: size - 1]] if start == 0 and inside else settings

    def _tried(self, job: PlannedRun) -> TriedSetting:
        worst = 2 * math.log(len(self.corpus.vocabulary))
        value = job.value if job.status in ("finished", "pruned") else None
        known = value if value is not None else worst
        return TriedSetting(job.config["setting"], known, job.status == "pruned", job.curve)

    def _choose(self) -> None:
        if self.samples:
            done = [job for job in self.tuned if job.status == "finished" and job.value is not None]
            if not done:  # every setting diverged or failed: there is nothing to confirm
                return
            self.chosen = dict(min(done, key=lambda job: job.value or math.inf).config["setting"])
        else:
            self.chosen = {}
        for seed in self.study.confirm_seeds:
            self.confirmed.append(self._job("confirm", seed, self.chosen, seed))

    def _job(self, stage: str, index: int, setting: dict[str, Any], seed: int) -> PlannedRun:
        """A job, ready if anything of it is owed."""
        config = self.point.configured(setting, seed, self.corpus)
        labels = {
            "study": self.study.name,
            "point": {"id": self.point.id, "label": self.point.label},
            "stage": stage,
            "setting": dict(setting),
        }
        run = config["run"]
        if run in self.jobs:  # two samples of one setting are one run
            return self.jobs[run]
        job = PlannedRun(
            run, self.point.label, stage, index, {**config, **labels}, self.study.epochs
        )
        self.jobs[run] = job
        records = self.store.run(job.run).records()
        self._read_curve(job, records)
        if not self._owes(records, test=stage == "confirm"):
            self._read_end(job, records)
        elif not self._was_cut_at_rung(job):
            self.ready.append(job)
        return job

    def _owes(self, records: list[Record], *, test: bool) -> bool:
        try:
            return records_pending(records, self.study.epochs, test=test)
        except UserError as error:
            raise UserError(f"point {self.point.label!r}: {error}") from None

    def _was_cut_at_rung(self, job: PlannedRun) -> bool:
        """Judge a cut-off run at the rung where the sweep may have died before judging it."""
        last = max(job.curve, default=0)
        if job.stage != "tune" or last not in self.rungs or self._passes(job, last):
            return False
        self.store.prune(job.run, last)
        job.status = "pruned"
        return True

    def _passes(self, job: PlannedRun, rung: int) -> bool:
        generation = job.index // self.study.generation
        earlier = self.tuned[: generation * self.study.generation]
        recorded = [other.curve[rung] for other in earlier if rung in other.curve]
        return rung not in job.curve or passes_rung(job.curve[rung], recorded, self.study.reduction)

    def _read_end(self, job: PlannedRun, records: list[Record]) -> None:
        end = find_end(records, self.study.epochs)
        job.status = end["status"] if end else "failed"
        self._read_curve(job, records)

    def _read_curve(self, job: PlannedRun, records: list[Record]) -> None:
        """The epochs on disk, those of a larger budget left out: all points have the same.

        The first counts wherever it is: what counts has but one, at the end of its budget.
        """
        known = epoch_records(records)
        for record in known:
            if record["epoch"] <= max(self.study.epochs, known[0]["epoch"]):
                job.take(record["epoch"], record["valid_token"])


def _contains(where: Any, value: Any) -> bool:
    if isinstance(where, Choice):
        return value in where.values
    return where.low <= value <= where.high
