"""Runs a sweep without Ray: in any order of runs, with deaths."""

import random
from pathlib import Path

from lmzoo.lab.store.archive import archived_runs, restore_run
from lmzoo.lab.store.records import CONFIG, RunFolder
from lmzoo.lab.study.planned_run import Answer
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.train.run import Run, model_facts
from lmzoo.trainables.resolve import resolve


def open_run(store: StudyStore, planned, corpus) -> Run:
    """Open a planned run as a worker does; a new run gets its config with the model's facts."""
    folder = store.run(planned.id)
    if planned.is_new:
        return Run(folder, {**planned.config, **model_facts(planned.config, corpus.task)}, corpus)
    return Run(folder, folder.config or planned.config, corpus)


def sweep(
    study,
    corpus,
    fields,
    path: Path,
    *,
    slots=2,
    seed=0,
    steps=10**6,
    deaths=0.0,
    open_run=open_run,
    archives=False,
) -> bool:
    """Sweep with `slots` runs at a time; return False if it dies after `steps` epochs.

    It dies at the worst moment: the last epoch is on disk, and the planner has not received it.
    So does the worker of a run, with probability `deaths` an epoch; another one continues the run.
    """
    generator = random.Random(seed)
    open_runs = {}
    store = StudyStore(path, archives=archives)
    try:
        planner = Planner(study, resolve(study, corpus, fields), store)
        for step in range(steps):
            for planned in planner.ready()[: slots - len(open_runs)]:
                planner.start(planned)
                open_runs[planned.id] = planned, open_run(store, planned, corpus)
            if not open_runs:
                return planner.done
            run_id = generator.choice(sorted(open_runs))
            planned, run = open_runs[run_id]
            if run.epoch <= planned.last_epoch:  # else the planner has missed an epoch
                next(run.train(planned.budget), None)
            if step == steps - 1:
                break
            dies = generator.random() < deaths
            if dies:
                planner.requeue(run_id)
            if dies or not report(planner, planned, run):
                run.close()
                del open_runs[run_id]
        return False
    finally:
        for _, run in open_runs.values():
            run.close()
        store.close()


def report(planner, planned, run) -> bool:
    """Report the last epoch and end the run as a worker does; return True if it continues."""
    test_loss = None
    answer = planner.report(planned.id, run.training.record)
    if run.training.diverged:
        status = "diverged"
    elif run.epoch >= planned.budget:
        status = "finished"
        if planned.stage == "confirm":
            test_loss = run.test().token
    elif answer is Answer.CONTINUE:
        return True
    elif answer is Answer.WAIT:
        planner.requeue(planned.id, saved=True)
        return False
    else:
        status = "pruned"
        run.folder.drop_checkpoints()
    reason = ""
    if status == "pruned":
        reason = f"rung {run.epoch}"
    run.end(status, reason)
    planner.end(planned.id, status, test_loss=test_loss)
    return False


def outcome(path: Path) -> dict:
    """Return run -> its records, without the fields that depend on the clock or the machine."""
    runs = {}
    for run in {run for run, _, _ in archived_runs(path)}:
        restore_run(path, run)
    for config in path.glob(f"*/{CONFIG}"):
        folder = RunFolder(config.parent)
        lines = (config.parent / "records.ndjson").read_text().splitlines()
        records = sorted(folder.records(), key=lambda r: (r["event"], r["epoch"]))
        assert len(lines) == len(records), f"{folder.path} has a record twice"
        for record in records:
            for key in ("seconds", "tokens_per_second", "host", "time", "environment"):
                record.pop(key, None)
        runs[folder.path.name] = records
    return runs


def assert_close(actual: dict, expected: dict, tolerance: float = 2e-5) -> None:
    """Assert equal runs and ends, and losses that differ only by the order of summation."""
    assert actual.keys() == expected.keys()
    for run, records in expected.items():
        for ours, theirs in zip(actual[run], records, strict=True):
            assert _exact(ours) == _exact(theirs), f"{run}: {ours} and {theirs}"
            for key, loss in theirs.items():
                if isinstance(loss, float):
                    assert abs(ours[key] - loss) <= tolerance, f"{run}: {ours} and {theirs}"


def _exact(record: dict) -> dict:
    return {key: value for key, value in record.items() if not isinstance(value, float)}
