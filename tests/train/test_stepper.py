"""Replayed steps equal executed ones; one that cannot be recorded is run; CUDA graphs by fakes."""

import contextlib
import copy
import dataclasses
import gc
import itertools
import logging
import math
import warnings
from pathlib import Path

import jaxtyping
import pytest
import torch

from lmzoo import zoo
from lmzoo.laws_of_training.packing import assert_trainings_equal, random_corpus
from lmzoo.train import stepper
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.stepper import CudaGraphs, RecordingError
from lmzoo.train.trainer import Training, fit
from tests.tiny import tiny
from tests.toy_model import Bigram
from tests.train.members import member

DEVICE = torch.device("cuda", 0)
WARN = compile("warnings.warn(text)", torch.__file__, "exec")
"""A warning that torch's own code passes on, as it does inside `with torch.device(...)`."""


class _Stream:
    def __init__(self, name, events):
        self.name = name
        self.events = events

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

    mode = ["default"]
    pools = itertools.count()

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
    assert seen == [False]
    assert gc.isenabled()


def test_a_synchronisation_is_reported_with_the_place_of_the_caller(events, monkeypatch):
    checks = str(Path(jaxtyping.__file__).parent)  # they wrap every function in tests
    monkeypatch.setattr(stepper, "OTHERS", (*stepper.OTHERS, checks))

    def warn(text):
        exec(WARN, {"warnings": warnings, "text": text})

    def work():
        warn("called a synchronizing CUDA operation")
        warn("called a synchronizing CUDA operation")
        warn("step() is running without CUDA graph capture")

    place = f"test_stepper.py:{warn.__code__.co_firstlineno + 1}"
    assert CudaGraphs(DEVICE).run(work) == f"it synchronises with the device at {place}"


EPOCHS = 5
RECIPE_KINDS = [
    Recipe(batch=16, lr=0.05, clip=0.1, warmup=11),
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1, clip=None),
    Recipe(batch=16, optimiser="rmsprop", weight_decay=0.1),
    Recipe(batch=16, loss="sentence"),
    dataclasses.replace(RECIPES["published"], batch=16),
]


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "lmzoo.train.stepper")
    return caplog


def _train(training, corpus, epochs=EPOCHS):
    for group in training.optimiser.param_groups:
        if isinstance(training.optimiser, torch.optim.RMSprop):
            group["foreach"] = True  # the default on CUDA
    assert list(fit(training, corpus, epochs))
    return training


def _train_plainly(monkeypatch, training, corpus, epochs=EPOCHS):
    with monkeypatch.context() as patch:
        patch.setattr(stepper, "device_recorder", lambda device: None)
        return _train(Training(copy.deepcopy(training.model), training.recipe, 1), corpus, epochs)


def _training(corpus, recipe=RECIPE_KINDS[0]):
    return member(corpus, 1, recipe)


def _assert_equal(actual, expected):
    assert_trainings_equal(actual, expected)
    groups = actual.optimiser.param_groups
    assert all(type(group["lr"]) is float for group in groups)  # not a tensor


@pytest.mark.parametrize("recipe", RECIPE_KINDS, ids=lambda r: f"{r.optimiser}-{r.accumulate}")
def test_replay_does_not_change_the_result(monkeypatch, corpus, fake_recorder, recipe):
    replayed = _training(corpus, recipe)
    expected = _train_plainly(monkeypatch, replayed, corpus)
    _assert_equal(_train(replayed, corpus), expected)
    steps = EPOCHS * math.ceil(60 / 16)
    assert fake_recorder.runs + fake_recorder.replays == steps
    assert fake_recorder.replays > steps / 3
    # Widths 4 and 8, of full batches and of the smaller last batch of the epoch.
    assert 2 <= fake_recorder.recordings <= 4


def test_steps_with_sources_are_replayed(monkeypatch, fake_recorder):
    replayed = Training(tiny("seq2seq"), Recipe(batch=4), 1)
    pairs = random_corpus(replayed.model)
    expected = _train_plainly(monkeypatch, replayed, pairs)
    assert_trainings_equal(_train(replayed, pairs), expected)
    assert fake_recorder.replays > 0


def test_replaced_optimiser_state_is_recorded_again(monkeypatch, corpus, fake_recorder):
    replayed = _training(corpus)
    expected = _train_plainly(monkeypatch, replayed, corpus, 8)
    _train(replayed, corpus, 4)
    before = fake_recorder.recordings
    replayed.load(copy.deepcopy(replayed.dump()))  # the optimiser's state has new addresses
    _assert_equal(_train(replayed, corpus, 8), expected)
    assert fake_recorder.recordings > before


def test_the_number_of_recordings_is_limited(monkeypatch, corpus, fake_recorder):
    monkeypatch.setattr(stepper, "MAX_RECORDINGS", 1)
    replayed = _training(corpus)
    expected = _train_plainly(monkeypatch, replayed, corpus)
    _assert_equal(_train(replayed, corpus), expected)
    assert fake_recorder.recordings == 1
    assert fake_recorder.replays


class _Branching(Bigram):
    """Branches on a value in Python."""

    name = "branching"

    def score_tokens(self, tokens, lengths):
        scores = super().score_tokens(tokens, lengths)
        if scores.sum().item() > 0:
            return scores * 1.5
        return scores


def test_a_model_that_synchronises_is_not_recorded(monkeypatch, corpus, fake_recorder, log):
    branching = Training(_Branching(None, corpus.task), RECIPE_KINDS[0], 1)
    expected = _train_plainly(monkeypatch, branching, corpus)
    _assert_equal(_train(branching, corpus), expected)
    assert fake_recorder.recordings == 0
    assert log.messages == [
        "the steps of branching are not replayed: operation not permitted when stream is "
        "capturing: aten._local_scalar_dense.default"
    ]


def test_a_model_that_draws_on_the_cpu_is_not_recorded(corpus, fake_recorder, log):
    model = zoo.build(zoo.config("gpt", width=4, dropout=0.5), corpus.task, 1)
    noisy = Training(model, Recipe(batch=16), 1)
    _train(noisy, corpus, 3)
    assert fake_recorder.recordings == 0
    reason = "it draws from the CPU's random generator"
    assert log.messages == [f"the steps of transformer_decoder are not replayed: {reason}"]


def test_a_reason_found_in_warm_up_stops_recording(corpus, fake_recorder, log, monkeypatch):
    run = fake_recorder.run
    monkeypatch.setattr(fake_recorder, "run", lambda work: run(work) or "it synchronises at x.py:3")
    _train(_training(corpus), corpus)
    assert fake_recorder.recordings == 0
    assert log.messages == ["the steps of recurrent_lm are not replayed: it synchronises at x.py:3"]


def test_a_run_alone_is_not_recorded_on_a_cpu(corpus):
    training = _training(corpus)
    assert stepper.device_recorder(torch.device("cpu")) is None
    assert not training.step.stepper.replays
    assert not training.step.stepper.few_shapes
