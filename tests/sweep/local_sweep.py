"""Runs a sweep without Ray: in any order of runs, with deaths."""

import random
from pathlib import Path

from lmzoo.store.records import CONFIG, RunFolder
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.resolve import resolve
from lmzoo.sweep.study_store import StudyStore
from lmzoo.train.run import Run
from lmzoo.train.run_config import add_model_facts


class SilentConsole:
    """A console that prints nothing; it counts epochs and collects the runs that have ended."""

    def __init__(self):
        self.epoch_count, self.ended = 0, []

    def add_epoch(self):
        self.epoch_count += 1

    def add_end(self, run):
        self.epoch_count += 1
        self.ended.append(run)


def local_worker(config, corpus, trial_id="", *, gpu=False):
    """Return a worker in this process; Ray Tune passes the corpus through its object store."""
    from lmzoo.sweep.worker import Worker  # not above, because it imports Ray

    class LocalWorker(Worker):
        def setup(self, config):
            super().setup(config, corpus=corpus, gpu=gpu)

    LocalWorker.trial_id = trial_id
    return LocalWorker(config)


def sweep(study, corpus, fields, path: Path, *, slots=2, seed=0, steps=10**6) -> bool:
    """Sweep with `slots` runs at a time; return False if it dies after `steps` epochs.

    It dies at the worst moment: the last epoch is on disk, and the planner has not received it.
    """
    generator, open_runs = random.Random(seed), {}
    store = StudyStore(path)
    try:
        planner = Planner(study, resolve(study, corpus, fields), corpus, store)
        for step in range(steps):
            for planned in planner.ready()[: slots - len(open_runs)]:
                planner.start(planned)
                open_runs[planned.id] = planned, open_run(store, planned, corpus)
            if not open_runs:
                return planner.done
            run_id = generator.choice(sorted(open_runs))
            planned, run = open_runs[run_id]
            if step == steps - 1:
                next(run.train(planned.budget), None)
            elif not _step(planner, planned, run):
                run.close()
                del open_runs[run_id]
        return False
    finally:
        for _, run in open_runs.values():
            run.close()
        store.close()


def open_run(store: StudyStore, planned, corpus) -> Run:
    """Open a planned run as a worker does; a new run gets its config with the model's facts."""
    folder = store.run(planned.id)
    if planned.is_new:
        return Run(folder, add_model_facts(planned.config, corpus.task), corpus)
    return Run(folder, folder.config or planned.config, corpus)


def _step(planner, planned, run) -> bool:
    """Train one epoch as a worker does; return True if the run continues."""
    record = next(run.train(planned.budget), run.training.record)
    passes = planner.report(planned.id, record)
    if run.training.diverged:
        status = "diverged"
    elif run.epoch >= planned.budget:
        status = "finished"
        if planned.stage == "confirm":
            run.test()
    elif passes:
        return True
    else:
        status = "pruned"
        run.folder.drop_checkpoints()
    run.end(status, f"rung {run.epoch}" if status == "pruned" else "")
    planner.end(planned.id, status)
    return False


def outcome(path: Path) -> dict:
    """Return run -> its records, without the fields that depend on the clock or the machine."""
    runs = {}
    for config in path.glob(f"*/{CONFIG}"):
        folder = RunFolder(config.parent)
        lines = (config.parent / "records.ndjson").read_text().splitlines()
        records = sorted(folder.records(), key=lambda r: (r["event"], r["epoch"]))
        assert len(lines) == len(records), f"{folder.path} has a record twice"
        for record in records:
            for key in ("seconds", "tokens_per_second", "host"):
                record.pop(key, None)
        runs[folder.path.name] = records
    return runs


def assert_close(actual: dict, expected: dict, tolerance: float = 2e-5) -> None:
    """Assert equal runs and ends, and losses that differ only by the order of summation."""
    assert actual.keys() == expected.keys()
    for run, records in expected.items():
        assert [_exact(r) for r in actual[run]] == [_exact(r) for r in records], run
        for ours, theirs in zip(actual[run], records, strict=True):
            for key in (k for k, v in theirs.items() if isinstance(v, float)):
                assert abs(ours[key] - theirs[key]) <= tolerance, f"{run}: {ours} and {theirs}"


def _exact(record: dict) -> dict:
    return {key: value for key, value in record.items() if not isinstance(value, float)}
