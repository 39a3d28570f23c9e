"""Work off an agenda without Ray: in any interleaving, dying wherever asked."""

import random
from pathlib import Path

from lmzoo.store.records import CONFIG, RunFolder
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore
from lmzoo.train.run import Run


class Silent:
    """A console that says nothing, and counts."""

    def __init__(self):
        self.epochs = 0

    def epoch(self):
        self.epochs += 1

    def end(self, job):
        self.epochs += 1


def sweep(study, corpus, fields, path: Path, *, slots=2, seed=0, steps=10**6) -> bool:
    """Sweep with so many slots; whether it was done before so many epochs were trained.

    It dies in the worst moment: the last epoch is on disk, and nobody has judged it.
    """
    chance, open_runs = random.Random(seed), {}
    store = StudyStore(path)
    try:
        agenda = Planner(study, resolve(study, corpus, fields), corpus, store)
        for step in range(steps):
            while len(open_runs) < slots and (job := agenda.next()):
                open_runs[job.run] = (job, Run(store.run(job.run), job.config, corpus))
            if not open_runs:
                return agenda.done
            run_id = chance.choice(sorted(open_runs))
            job, run = open_runs[run_id]
            if step == steps - 1:
                next(run.train(job.budget), None)
            elif not _step(agenda, job, run):
                run.close()
                del open_runs[run_id]
        return False
    finally:
        for _, run in open_runs.values():
            run.close()
        store.close()


def _step(agenda, job, run) -> bool:
    """One epoch, as the trial does it; whether the run goes on."""
    record = next(run.train(job.budget), None)
    if run.epoch >= job.budget or run.training.diverged:
        if run.training.diverged:
            run.end("diverged")
        else:
            if job.stage == "confirm":
                run.test()
            run.end("finished")
    elif record is not None and agenda.report(job.run, run.epoch, record["valid_token"]):
        return True
    agenda.end(job.run)
    return False


def outcome(path: Path) -> dict:
    """Run -> everything of its records that depends on neither clock nor machine."""
    found = {}
    for config in path.glob(f"*/{CONFIG}"):
        folder = RunFolder(config.parent)
        lines = (config.parent / "records.ndjson").read_text().splitlines()
        records = sorted(folder.records(), key=lambda r: (r["event"], r["epoch"]))
        assert len(lines) == len(records), f"{folder.path} has a record twice"
        for record in records:
            for key in ("seconds", "tokens_per_second", "host"):
                record.pop(key, None)
        found[folder.path.name] = records
    return found


def agree(found: dict, expected: dict, tolerance: float = 2e-5) -> None:
    """The same runs with the same ends, and losses as near as another order of summing leaves."""
    assert found.keys() == expected.keys()
    for run, records in expected.items():
        assert [_words(r) for r in found[run]] == [_words(r) for r in records], run
        for one, other in zip(found[run], records, strict=True):
            for key in (k for k, v in other.items() if isinstance(v, float)):
                assert abs(one[key] - other[key]) <= tolerance, f"{run}: {one} and {other}"


def _words(record: dict) -> dict:
    return {key: value for key, value in record.items() if not isinstance(value, float)}
