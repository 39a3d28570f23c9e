"""A study's own listeners: the events that they receive, and that they cannot end a sweep."""

import dataclasses
from types import SimpleNamespace

import pytest

import lmzoo
from lmzoo.lab.sweep import command
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer

from .local_fleet import Events, LocalWorker


class OnlyEnds:
    """A listener without the other methods."""

    def __init__(self) -> None:
        self.ended = []

    def end(self, run, test) -> None:
        self.ended.append((run, test))


class Raises:
    def epoch(self, run, record) -> None:
        raise ValueError("no route")


def test_a_listener_that_raises_is_named_once_and_the_sweep_goes_on(
    planner, corpus, tmp_path, caplog
):
    events = Events()
    fleet = Fleet(planner, Packer(corpus, 1), [Raises(), OnlyEnds(), events])
    worker = LocalWorker("a", fleet, tmp_path, corpus)
    for step in range(3):
        worker.train(worker.exchange(float(step)))
    worker.exchange(3.0)
    worker.pack.suspend()
    worker.lock.close()
    assert len(events.epochs) >= 2
    said = [r.getMessage() for r in caplog.records if "listener" in r.getMessage()]
    assert len(said) == 1
    assert "listener Raises is not called again: ValueError: no route (test_listeners" in said[0]


@pytest.mark.parametrize("given", ["study", "main"])
def test_main_takes_listeners(study, monkeypatch, given):
    own, seen = OnlyEnds(), []
    monkeypatch.setattr(command, "run_studies", seen.extend)
    if given == "study":
        lmzoo.main(dataclasses.replace(study, listeners=(own,)))
    else:
        lmzoo.main(study, listeners=(own,))
    assert seen[0].listeners == (own,)


def test_run_study_takes_listeners(study, monkeypatch):
    own, other = OnlyEnds(), OnlyEnds()
    seen = []

    def sweep(changed, *_, **__):
        seen.append(changed)
        return SimpleNamespace(run=lambda *_, **__: 130)

    monkeypatch.setattr(command, "Sweep", sweep)
    with pytest.raises(KeyboardInterrupt):
        lmzoo.run_study(dataclasses.replace(study, listeners=(own,)), listeners=[other])
    assert seen[0].listeners == (own, other)
