"""Ray Tune asks for workers and reports their ends."""

from types import SimpleNamespace

import pytest
from ray.tune.search import Searcher

from lmzoo.base.errors import UserError
from lmzoo.lab.sweep.driver.ray_backend import _Watch, _WorkerSearch


def test_no_more_workers_are_suggested_than_wanted():
    ended, wanted = [], [2]
    sweep = SimpleNamespace(
        finished=False,
        error=None,
        wanted=lambda: wanted[0],
        worker_ended=lambda worker, *, died: ended.append((worker, died)),
    )
    search = _WorkerSearch(sweep)
    suggested = [search.suggest(name) for name in "abc"]
    assert suggested == [{"worker": "a"}, {"worker": "b"}, None]
    search.on_trial_complete("a", error=True)
    search.on_trial_complete("b", {"done": True})
    assert ended == [("b", False)], "the death of a is reported with its cause"
    assert [search.suggest(name) for name in "def"] == [{"worker": "d"}, {"worker": "e"}, None]
    wanted[0] = 3
    assert search.suggest("g") == {"worker": "g"}
    sweep.finished = True
    assert search.suggest("h") == Searcher.FINISHED
    callback = _Watch(sweep)
    callback.on_step_end(1, [])
    sweep.error = UserError("the store is gone")
    with pytest.raises(UserError, match="the store is gone"):
        callback.on_step_end(2, [])
