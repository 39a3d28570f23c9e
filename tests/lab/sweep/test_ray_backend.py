"""Ray Tune asks for workers and reports their ends."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ray.tune.search import Searcher

from lmzoo.base.errors import UserError
from lmzoo.lab.sweep.driver.ray_backend import _Watch, _WorkerSearch

LOW = "1 worker(s) were killed due to the node running low on memory.\nMemory on the node (IP: {}, "


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (LOW.format("10.0.0.1") + "ID: abcdef012) was 9GB used", "10.0.0.1 (abcdef)"),
        ("killed due to the node running low on memory", "which is not known"),
        ("The actor died", ""),
    ],
)
def test_a_worker_that_ray_killed_for_memory_names_its_node(text, node, tmp_path):
    file, sweep = tmp_path / "error.txt", Mock()
    file.write_text(text)
    _Watch(sweep).on_trial_error(1, [], Mock(error_file=str(file), trial_id="a"))
    sweep.worker_ended.assert_called_once_with("a", died=True, memory=node)


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
