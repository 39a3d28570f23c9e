"""Which runs share a pack, and how many."""

import threading

import pytest

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.lab.sweep.fleet.packing import CPU_PACK_SIZE, GPU_PACK_SIZE, Packer, parse_fuse
from lmzoo.lab.sweep.fleet.sharing import ReadyRuns
from lmzoo.train import run as run_module
from lmzoo.train.pack_compatibility import member_bytes


@pytest.fixture
def run(planner):
    return planner.ready()[0]


@pytest.mark.parametrize(("text", "size"), [("auto", None), ("off", 0), ("8", 8)])
def test_fuse_is_parsed(text, size):
    assert parse_fuse(text) == size


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.5", ""])
def test_what_is_no_size_of_a_pack_is_refused(text):
    with pytest.raises(UserError, match=r"--fuse .* is not auto, off or a number"):
        parse_fuse(text)


@pytest.mark.parametrize(("size", "most"), [(None, CPU_PACK_SIZE), (0, 1), (3, 3)])
def test_the_size_of_a_pack_on_a_cpu(run, corpus, size, most):
    packer = Packer(corpus, size)
    assert packer.max_members(run) == most
    assert packer.is_packed(run) == (size != 0)


def test_the_size_of_a_pack_on_a_gpu_follows_from_its_memory(run, corpus):
    packer = Packer(corpus, None)
    config = zoo.MODELS.parse(run.config["model"])
    model = zoo.build(config, corpus.task)
    needed = member_bytes(model, run.config["recipe"]["batch"])
    assert packer.max_members(run, memory=2**40) == GPU_PACK_SIZE
    assert packer.max_members(run, memory=20 * needed) == 8  # a power of two
    # A run alone is always tried.
    assert packer.max_members(run, memory=1) == 1


def test_limits_measured_on_cpus_do_not_hold_on_gpus(run, corpus, monkeypatch):
    monkeypatch.setattr("lmzoo.trainables.trainer.packing_pays", lambda *_: False)
    packer = Packer(corpus, None)
    assert not packer.is_packed(run)
    assert packer.is_packed(run, memory=2**30)


def test_runs_that_are_kept_apart_share_packs_with_each_other_only(planner, corpus):
    packer = Packer(corpus, None)
    first, second, other = planner.ready()[:3]
    usual = packer.pack_key(other)
    packer.keep_apart([first, second])
    apart = packer.pack_key(first)
    assert apart == packer.pack_key(second) != usual
    assert packer.pack_key(other) == usual
    assert packer.max_members(first) == CPU_PACK_SIZE
    packer.join(first)
    assert packer.pack_key(first) == usual


def test_prepare_computes_what_the_start_of_a_run_needs(planner, corpus, monkeypatch):
    monkeypatch.setattr(run_module, "_FACTS", {})
    packer = Packer(corpus, None)
    run = planner.ready()[0]
    assert "parameters" not in packer.config(run)
    packer.prepare(planner.ready(), threading.Event())
    monkeypatch.setattr("lmzoo.trainables.trainer.reason_not_packable", None)  # a call would fail
    assert packer.is_packed(run)
    assert packer.config(run)["parameters"] > 0


def model(length=10, vocab=50):
    return zoo.build(zoo.config("recurrent_lm", width=8), Task(vocab=vocab, length=length))


def test_the_memory_of_a_member_grows_with_batch_length_and_vocabulary():
    estimate = member_bytes(model(), 8)
    of_large_batch = member_bytes(model(), 64)
    of_long_rows = member_bytes(model(length=40), 64)
    of_many_words = member_bytes(model(vocab=500), 8)
    assert estimate < of_large_batch < of_long_rows
    assert estimate < of_many_words


def test_the_memory_of_a_member_is_that_of_its_state_and_of_some_logits():
    weights = sum(parameter.nbytes for parameter in model().parameters())
    # Weights, their gradients, and two moments of Adam.
    state = 4 * weights
    # Four bytes for each word at nine places of eight sequences.
    logits = 4 * 50 * 9 * 8
    estimate = member_bytes(model(), 8)
    assert state + logits <= estimate < state + 20 * logits


@pytest.fixture
def ready(planner):
    """The pending runs by label, added in the reverse order."""
    ready = ReadyRuns(lambda run: run.label)
    for run in reversed(planner.ready()):
        ready.add(run)
    return ready


def test_ready_runs_keep_the_order_of_priority(planner, ready):
    runs = planner.ready()
    first, second, *_ = dict.fromkeys(run.label for run in runs)
    labels = {run.label for run in runs}
    assert len(ready) == len(runs)
    assert ready.first_key(labels) == first
    assert ready.first_key(labels - {first}) == second


def test_ready_runs_that_were_taken_are_known_by_a_sample(planner, ready):
    label = planner.ready()[0].label
    expected = [run for run in planner.ready() if run.label == label]
    assert ready.take(label, 99) == expected
    assert ready.count(label) == 0
    assert ready.sample(label).label == label
