"""Ray Tune asks for workers and reports their ends."""

from types import SimpleNamespace

import pytest
from ray.tune.search import Searcher

from lmzoo.base.errors import UserError
from lmzoo.lab.sweep.driver.ray_backend import _Watch, _WorkerSearch


class Sweep:
    """What Ray Tune uses of a coordinator."""

    def __init__(self) -> None:
        self.count, self.finished, self.error, self.ended = 2, False, None, []

    def wanted(self):
        return self.count

    def worker_ended(self, worker, *, died):
        self.ended.append((worker, died))


def test_no_more_workers_are_suggested_than_wanted():
    sweep = Sweep()
    search = _WorkerSearch(sweep)
    suggested = [search.suggest(name) for name in "abc"]
    assert suggested == [{"worker": "a"}, {"worker": "b"}, None]
    search.on_trial_complete("a", error=True)
    search.on_trial_complete("b", {"done": True})
    assert sweep.ended == [("b", False)], "the death of a is reported with its cause"
    assert [search.suggest(name) for name in "def"] == [{"worker": "d"}, {"worker": "e"}, None]
    sweep.count = 3
    assert search.suggest("g") == {"worker": "g"}


def test_a_finished_sweep_suggests_no_worker():
    sweep = Sweep()
    sweep.finished = True
    assert _WorkerSearch(sweep).suggest("a") == Searcher.FINISHED


def test_an_error_of_the_coordinator_stops_ray_tune():
    sweep = SimpleNamespace(error=None)
    callback = _Watch(sweep)
    callback.on_step_end(1, [])
    sweep.error = UserError("the store is gone")
    with pytest.raises(UserError, match="the store is gone"):
        callback.on_step_end(2, [])
