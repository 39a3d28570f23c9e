"""The sequence of torch.cuda calls that records a CUDA graph, checked against fakes of them."""

import contextlib
import gc
import itertools
import warnings
from pathlib import Path

import jaxtyping
import pytest
import torch

from lmzoo.train import recorder
from lmzoo.train.recorder import CudaGraphs, RecordingError

DEVICE = torch.device("cuda", 0)
WARN = compile("warnings.warn(text)", torch.__file__, "exec")
"""A warning that torch's own code passes on, as it does inside `with torch.device(...)`."""


class _Stream:
    def __init__(self, name, events):
        self.name, self.events = name, events

    def wait_stream(self, other):
        self.events.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def events(monkeypatch):
    events: list[str] = []
    streams = {"current": _Stream("current", events), "side": _Stream("side", events)}

    @contextlib.contextmanager
    def stream(stream):
        events.append(f"on {stream.name}")
        try:
            yield
        finally:
            events.append(f"off {stream.name}")

    @contextlib.contextmanager
    def graph(graph, *, pool, stream):
        events.append(f"capture {graph.name} in {pool} on {stream.name}")
        yield
        events.append("captured")

    class Graph:
        name = "graph"

        def replay(self):
            events.append("replay")

    mode, pools = ["default"], itertools.count()

    def set_mode(value):
        mode[0] = value
        events.append(f"mode {value}")

    for name, value in {
        "Stream": lambda device: streams["side"],
        "current_stream": lambda device: streams["current"],
        "graph_pool_handle": lambda: f"pool {next(pools)}",
        "get_sync_debug_mode": lambda: mode[0],
        "set_sync_debug_mode": set_mode,
        "stream": stream,
        "graph": graph,
        "CUDAGraph": Graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return events


def test_work_runs_on_the_side_stream_between_two_waits(events):
    assert CudaGraphs(DEVICE).run(lambda: events.append("work")) == ""
    assert events == [
        "side waits for current", "on side", "mode warn", "work", "mode default", "off side",
        "current waits for side",
    ]  # fmt: skip


def test_a_recording_uses_the_pool_and_the_side_stream(events):
    replay = CudaGraphs(DEVICE).record(lambda: events.append("work"))
    assert events == [
        "on side", "capture graph in pool 0 on side", "work", "captured", "off side",
    ]  # fmt: skip
    replay()
    assert events[-1] == "replay"


def test_a_pool_ends_with_its_last_graph_and_with_a_failed_capture(events):
    def fails():
        raise RuntimeError("no")

    graphs = CudaGraphs(DEVICE)

    def pool_of(work=lambda: None):
        kept.append(graphs.record(work))
        return next(e.split()[4] for e in reversed(events) if e.startswith("capture "))

    kept: list[object] = []
    assert [pool_of(), pool_of()] == ["0", "0"]
    kept.pop(0)
    assert pool_of() == "0"
    kept.clear()
    assert pool_of() == "1"
    with pytest.raises(RecordingError, match="no"):
        pool_of(fails)
    assert pool_of() == "2"


def test_the_collector_is_off_during_a_capture_only(events):
    seen = []
    CudaGraphs(DEVICE).record(lambda: seen.append(gc.isenabled()))
    assert (seen, gc.isenabled()) == ([False], True)


def test_a_synchronisation_is_reported_with_the_place_of_the_caller(events, monkeypatch):
    checks = str(Path(jaxtyping.__file__).parent)  # they wrap every function in tests
    monkeypatch.setattr(recorder, "OTHERS", (*recorder.OTHERS, checks))

    def warn(text):
        exec(WARN, {"warnings": warnings, "text": text})

    def work():
        warn("called a synchronizing CUDA operation")
        warn("called a synchronizing CUDA operation")
        warn("step() is running without CUDA graph capture")

    place = f"test_recorder.py:{warn.__code__.co_firstlineno + 1}"
    assert CudaGraphs(DEVICE).run(work) == f"it synchronises with the device at {place}"
