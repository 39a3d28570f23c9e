"""Drives a fleet without training: losses depend on the point and the run only."""

import random

from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.messages import Ended, Exchange


def drive(fleet: Fleet, steps: int = 10**6, level=lambda run: 0.0) -> None:
    """Let one worker train packs for `steps` epochs; an epoch takes a second."""
    opened = []
    reports = []
    for step in range(steps):
        reply = fleet.exchange(Exchange("w", opened, reports), live=1, now=float(step))
        for run_id, record in reports:
            if record["epoch"] >= fleet.planner.study.epochs:
                test = {"token": record["valid_token"]}
                fleet.ended("w", Ended(run_id, "finished", test=test))
        if reply is not None:
            for run_id in reply.prune:
                fleet.ended("w", Ended(run_id, "pruned"))
            for run_id in reply.release:
                fleet.released("w", run_id)
        if fleet.done:
            return
        if reply is None or not reply.members:
            reply = fleet.exchange(Exchange("w"), live=1, now=float(step))
        opened = []
        if reply is not None:
            opened = reply.members
        reports = []
        for run_id in opened:
            run = fleet.workers["w"].training[run_id]
            reports.append((run_id, _record(run, level(run))))


def _record(run, level: float) -> dict:
    epoch = run.last_epoch + 1
    if run.config["model"]["name"] == "ngram_count":
        epoch = run.budget
    noise = random.Random(run.id).uniform(0, 0.01)
    return {"epoch": epoch, "valid_token": 2 + level + noise + 1 / epoch}
