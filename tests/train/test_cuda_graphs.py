"""How torch is asked for a CUDA graph, with torch's own part played by what writes it down."""

import contextlib
import warnings

import pytest
import torch

from lmzoo.train.capture.cuda import CudaGraphs, waits

DEVICE = torch.device("cuda", 0)


class _Stream:
    def __init__(self, name, done):
        self.name, self.done = name, done

    def wait_stream(self, other):
        self.done.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def done(monkeypatch):
    found: list[str] = []
    streams = {"here": _Stream("here", found), "side": _Stream("side", found)}

    @contextlib.contextmanager
    def stream(one):
        found.append(f"on {one.name}")
        try:
            yield
        finally:
            found.append(f"off {one.name}")

    @contextlib.contextmanager
    def graph(made, *, pool, stream):
        found.append(f"capture {made.name} in {pool} on {stream.name}")
        yield
        found.append("captured")

    class Graph:
        name = "graph"

        def replay(self):
            found.append("replay")

    mode = ["default"]

    def set_mode(to):
        mode[0] = to
        found.append(f"mode {to}")

    for name, value in {
        "Stream": lambda device: streams["side"],
        "current_stream": lambda device: streams["here"],
        "graph_pool_handle": lambda: "the pool",
        "get_sync_debug_mode": lambda: mode[0],
        "set_sync_debug_mode": set_mode,
        "stream": stream,
        "graph": graph,
        "CUDAGraph": Graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return found


def test_a_step_is_warmed_up_on_the_side_stream_between_two_waits(done):
    assert CudaGraphs(DEVICE).run(lambda: done.append("work")) == ""
    assert done == [
        "side waits for here", "on side", "mode warn", "work", "mode default", "off side",
        "here waits for side",
    ]  # fmt: skip


def test_the_mode_is_put_back_after_an_error(done):
    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        CudaGraphs(DEVICE).run(fails)
    assert done[-2:] == ["mode default", "off side"]


def test_a_recording_shares_pool_and_stream_and_replays(done):
    replay = CudaGraphs(DEVICE).record(lambda: done.append("work"))
    assert done == [
        "on side", "capture graph in the pool on side", "work", "captured", "off side",
    ]  # fmt: skip
    replay()
    assert done[-1] == "replay"


def test_a_wait_is_named_with_its_place(done):
    def work():
        warnings.warn_explicit("called a synchronizing CUDA operation", UserWarning, "/a/b.py", 7)
        warnings.warn_explicit("called a synchronizing CUDA operation", UserWarning, "/a/c.py", 8)
        warnings.warn("step() is running without CUDA graph capture", stacklevel=1)

    assert CudaGraphs(DEVICE).run(work) == "it waits for the device at b.py:7"


def test_other_warnings_are_said_again():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.warn("another matter", UserWarning, stacklevel=1)
    with pytest.warns(UserWarning, match="another matter"):
        assert waits(said) == ""
