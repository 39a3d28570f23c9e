"""Listeners: none can end a sweep, and a study takes them."""

from pathlib import Path
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
    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def epoch(self, run, record) -> None:
        raise self._error("no route")


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_listener_that_raises_is_named_once_and_the_sweep_goes_on(
    error, planner, corpus, tmp_path, caplog
):
    events = Events()
    fleet = Fleet(planner, Packer(corpus, 1), [Raises(error), OnlyEnds(), events])
    worker = LocalWorker("a", fleet, tmp_path, corpus)
    for step in range(3):
        worker.train(worker.exchange(float(step)))
    worker.exchange(3.0)
    worker.pack.suspend()
    worker.lock.close()
    assert len(events.epochs) >= 2
    said = [r.getMessage() for r in caplog.records if "listener" in r.getMessage()]
    # Although three epochs were trained.
    assert len(said) == 1
    text = f"listener Raises is not called again: {error.__name__}: no route (test_listeners"
    assert text in said[0]


def test_run_study_takes_listeners(study, monkeypatch):
    own = OnlyEnds()
    seen = []

    def sweep(changed, *_, **__):
        seen.append(changed)
        return SimpleNamespace(run=lambda *_, **__: 130)

    monkeypatch.setattr(command, "Sweep", sweep)
    with pytest.raises(KeyboardInterrupt):
        lmzoo.run_study(study, listeners=(own,))
    assert seen[0].listeners == (own,)


def test_run_study_takes_the_folder_under_its_old_name(study, monkeypatch):
    folders = []

    def run(_data_dir, folder, *_, **__):
        folders.append(folder)
        return 130

    monkeypatch.setattr(command, "Sweep", lambda *_, **__: SimpleNamespace(run=run))
    with pytest.raises(KeyboardInterrupt), pytest.warns(FutureWarning, match="out="):
        lmzoo.run_study(study, storage="elsewhere")
    assert folders == [Path("elsewhere")]
