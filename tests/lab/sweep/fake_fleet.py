"""Drives a fleet without training: losses depend on the point and the run only."""

import hashlib

from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.messages import Ended, Exchange


def drive(fleet: Fleet, steps: int = 10**6, level=lambda run: 0.0) -> None:
    """Let one worker train packs for `steps` epochs; an epoch takes a second."""
    opened, reports = [], []
    for step in range(steps):
        reply = fleet.exchange(Exchange("w", opened, reports), live=1, now=float(step))
        for run_id, record in reports:
            if record["epoch"] >= fleet.planner.study.epochs:
                fleet.ended("w", Ended(run_id, "finished", test={"token": record["valid_token"]}))
        for run_id in reply.prune if reply else ():
            fleet.ended("w", Ended(run_id, "pruned"))
        for run_id in reply.release if reply else ():
            fleet.released("w", run_id)
        if fleet.done:
            return
        if reply is None or not reply.members:
            reply = fleet.exchange(Exchange("w"), live=1, now=float(step))
        opened = reply.members if reply else []
        runs = [fleet.workers["w"].training[run_id] for run_id in opened]
        reports = [(run.id, _record(run, level(run))) for run in runs]


def _record(run, level: float) -> dict:
    epoch = run.budget if run.config["model"]["name"] == "ngram_count" else run.last_epoch + 1
    noise = int(hashlib.md5(run.id.encode()).hexdigest(), 16) % 1000 / 1e5
    return {"epoch": epoch, "valid_token": 2 + level + noise + 1 / epoch}
