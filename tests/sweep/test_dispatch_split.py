"""An idle worker gets half of a pack that has enough work left, one half at a time."""

import pytest

from lmzoo.sweep import dispatch
from lmzoo.sweep.dispatch import MAX_FAILURES, MIN_SECONDS_LEFT, MIN_SECONDS_LEFT_IDLE, Dispatcher
from lmzoo.sweep.packing import Packer
from lmzoo.sweep.reassign import run_id_of

from .local_sweep import SilentConsole


class FakeTune:
    """Ray Tune with six runs in one trial, a number of live workers, and a clock."""

    def __init__(self, planner, corpus, monkeypatch):
        self.live, self.now = 1, 0.0
        monkeypatch.setattr(dispatch.time, "monotonic", lambda: self.now)
        packer = Packer(planner, corpus, max_members=None)
        self.dispatcher = Dispatcher(packer, SilentConsole(), 1, lambda: self.live)
        self.start("one")
        self.dispatcher.max_workers = 3

    def start(self, trial):
        """Start a trial, and return its runs; empty if there is nothing to start."""
        config = self.dispatcher.suggest(trial) or {"folders": ()}
        return {run_id_of(folder) for folder in config["folders"]}

    def report(self, trial, epoch, seconds=MIN_SECONDS_LEFT):
        """Report an epoch of all runs of a trial, which took this long."""
        self.now += seconds
        assert self.dispatcher.report(trial, [(run, epoch, 2.0, False) for run in self.runs(trial)])

    def finish(self, trial):
        """End all runs of a trial."""
        ended = [(run, 9, 2.0, True) for run in self.runs(trial)]
        self.dispatcher.on_trial_complete(trial, {"runs": ended})

    def runs(self, trial):
        return sorted(self.dispatcher.packs[trial].unfinished)

    def sizes(self):
        return {trial: len(pack.unfinished) for trial, pack in self.dispatcher.packs.items()}


@pytest.fixture
def tune(planner, corpus, monkeypatch, removed):
    fake = FakeTune(planner, corpus, monkeypatch)
    assert fake.sizes() == {"one": 6}
    return fake


def test_an_idle_worker_gets_half_of_a_pack(tune, removed):
    runs = set(tune.runs("one"))
    tune.report("one", 1)
    assert not removed, "no worker is idle"
    tune.live = 2
    tune.report("one", 1)
    half = tune.start("two")
    assert tune.sizes() == {"one": 3, "two": 3}
    assert removed == {"one": half}
    kept = set(tune.runs("one"))
    assert kept | half == runs
    tune.dispatcher.on_trial_complete("one", error=True)
    assert tune.start("again") == kept, "the reassigned runs came back"


def test_an_epoch_that_is_reported_twice_counts_once(tune):
    for trial in ("one", "one"):
        tune.report(trial, 1)
    assert tune.dispatcher.console.epoch_count == 6


@pytest.mark.parametrize(
    ("epochs_left", "seconds"),
    [(1, MIN_SECONDS_LEFT / 2), (2, MIN_SECONDS_LEFT / 4), (0, 9 * MIN_SECONDS_LEFT)],
)
def test_a_pack_with_little_time_left_is_not_split(tune, epochs_left, seconds):
    tune.live = 2
    budget = tune.dispatcher.packs["one"].config["budget"]
    tune.report("one", budget - epochs_left, seconds)
    assert not tune.start("two")


def test_an_idle_actor_gets_a_half_with_less_time_left(tune):
    """After the end of a trial its actor is idle; the next trial uses it."""
    tune.live, last = 2, tune.dispatcher.packs["one"].config["budget"] - 1
    tune.report("one", 1)
    assert tune.start("two")
    tune.finish("two")
    tune.report("one", last, MIN_SECONDS_LEFT_IDLE / 2)
    assert not tune.start("three")
    tune.report("one", last, MIN_SECONDS_LEFT_IDLE)
    assert tune.start("three")
    tune.live = 3
    tune.report("three", last, MIN_SECONDS_LEFT_IDLE)
    tune.report("one", last, MIN_SECONDS_LEFT_IDLE)
    assert not tune.start("four"), "no actor is idle"


def test_a_death_leaves_no_idle_actor(tune, monkeypatch):
    tune.live, last = 3, tune.dispatcher.packs["one"].config["budget"] - 1
    tune.report("one", 1)
    assert tune.start("two")
    tune.report("two", 1)
    for death in range(MAX_FAILURES + 1):
        assert len(tune.start(f"three {death}")) == 1
        tune.dispatcher.on_trial_complete(f"three {death}", error=True)
    monkeypatch.setattr(tune.dispatcher.planner, "ready", list)
    for epoch in (last + 1, last):  # the first report only sets the time of the last report
        tune.report("one", epoch, MIN_SECONDS_LEFT_IDLE)
    assert tune.sizes() == {"one": 3, "two": 2}


def test_the_next_split_waits_until_the_last_half_has_reported(tune):
    tune.live = 3
    tune.report("one", 1)
    tune.report("one", 1)
    assert tune.start("two")
    tune.report("one", 1)
    assert not tune.start("three"), "the second worker has not reported yet"
    tune.report("two", 1)
    tune.report("one", 1)
    assert tune.start("three")


def test_a_worker_that_another_application_uses_is_not_requested_again(tune):
    """Then the half starts only when its trial of origin ends, and no pack is split again."""
    tune.live = 2
    tune.report("one", 1)
    assert tune.start("two")
    tune.finish("one")
    tune.report("two", 1)
    assert not tune.start("three")
    assert tune.sizes() == {"two": 3}
    tune.live = 3
    tune.report("two", 1)
    assert tune.start("three"), "one more worker is live"


def test_no_more_trials_run_than_the_maximum(tune):
    tune.live, tune.dispatcher.max_workers = 9, 1
    tune.report("one", 1)
    assert not tune.start("two")


def test_the_deaths_of_a_half_are_counted_from_zero(tune):
    for death in range(MAX_FAILURES):
        trial = "one" if death == 0 else f"again {death}"
        tune.dispatcher.on_trial_complete(trial, error=True)
        assert len(tune.start(f"again {death + 1}")) == 6
    tune.live = 2
    tune.report(f"again {MAX_FAILURES}", 1)
    half = tune.start("two")
    tune.dispatcher.on_trial_complete("two", error=True)
    assert tune.start("two again") == half
