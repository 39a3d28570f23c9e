"""A place with nothing to do gets half of a pack: of what is worth it, and once at a time."""

import pytest

from lmzoo.sweep import dispatch as jobs
from lmzoo.sweep import reassign as handover
from lmzoo.sweep.dispatch import MAX_FAILURES, WORTH, WORTH_AT_ONCE, Dispatcher
from lmzoo.sweep.packing import Packer
from tests.sweep.byhand import Silent


class Sweep:
    """Six runs with one trial, and as many places as `live` says; a clock that a test moves."""

    def __init__(self, tuned, corpus, monkeypatch):
        self.live, self.now = 1, 0.0
        monkeypatch.setattr(jobs.time, "monotonic", lambda: self.now)
        self.jobs = Dispatcher(Packer(tuned, corpus, most=None), Silent(), 1, lambda: self.live)
        self.begin("one")
        self.jobs.places = 3

    def begin(self, trial):
        """A trial starts; the runs that it has."""
        return names(self.jobs.suggest(trial) or {"folders": ()})

    def tell(self, trial, epoch, seconds=WORTH):
        """The trial tells of an epoch that took so long."""
        self.now += seconds
        going = sorted(self.jobs.runs[trial].going)
        assert self.jobs.take(trial, [(run, epoch, 2.0, False) for run in going])

    def sizes(self):
        return {trial: len(pack.going) for trial, pack in self.jobs.runs.items()}


def names(config):
    return {handover.run_of(folder) for folder in config["folders"]}


@pytest.fixture
def sweep(tuned, corpus, monkeypatch, given):
    made = Sweep(tuned, corpus, monkeypatch)
    assert made.sizes() == {"one": 6}
    return made


def test_half_of_a_pack_goes_to_an_idle_place(sweep, given):
    runs = set(sweep.jobs.runs["one"].going)
    sweep.tell("one", 1)
    assert not given, "there is nobody to give to"
    sweep.live = 2
    sweep.tell("one", 1)
    shared = sweep.begin("two")
    assert sweep.sizes() == {"one": 3, "two": 3}
    assert given == {"one": shared}
    assert sweep.jobs.runs["one"].going | shared == runs
    kept = set(sweep.jobs.runs["one"].going)
    sweep.jobs.on_trial_complete("one", error=True)
    assert sweep.begin("again") == kept, "what was given away came back"


def test_an_epoch_that_is_told_again_counts_once(sweep):
    for trial in ("one", "one"):
        sweep.tell(trial, 1)
    assert sweep.jobs.console.epochs == 6


@pytest.mark.parametrize(("left", "seconds"), [(1, WORTH / 2), (2, WORTH / 4), (0, 9 * WORTH)])
def test_what_is_all_but_over_is_not_shared(sweep, left, seconds):
    sweep.live = 2
    sweep.tell("one", sweep.jobs.runs["one"].config["budget"] - left, seconds)
    assert not sweep.begin("two")


def test_an_idle_actor_takes_even_little(sweep):
    """One that has ended its runs; who takes over its place afterwards has to start one."""
    sweep.live, last = 2, sweep.jobs.runs["one"].config["budget"] - 1
    sweep.tell("one", 1)
    assert sweep.begin("two")
    sweep.jobs.on_trial_complete("two", {"runs": ended(sweep, "two")})
    sweep.tell("one", last, WORTH_AT_ONCE / 2)
    assert not sweep.begin("three")
    sweep.tell("one", last, WORTH_AT_ONCE)
    assert sweep.begin("three")
    sweep.live = 3
    sweep.tell("three", last, WORTH_AT_ONCE)
    sweep.tell("one", last, WORTH_AT_ONCE)
    assert not sweep.begin("four"), "the actor that stood idle has work"


def test_no_actor_is_left_of_a_death(sweep, monkeypatch):
    sweep.live, last = 3, sweep.jobs.runs["one"].config["budget"] - 1
    sweep.tell("one", 1)
    assert sweep.begin("two")
    sweep.tell("two", 1)
    for death in range(MAX_FAILURES + 1):
        assert len(sweep.begin(f"three {death}")) == 1
        sweep.jobs.on_trial_complete(f"three {death}", error=True)
    monkeypatch.setattr(sweep.jobs.agenda, "ready", list)
    for epoch in (last + 1, last):  # the first sets its clock
        sweep.tell("one", epoch, WORTH_AT_ONCE)
    assert sweep.sizes() == {"one": 3, "two": 2}


def test_the_next_half_waits_until_the_last_was_begun(sweep):
    sweep.live = 3
    sweep.tell("one", 1)
    sweep.tell("one", 1)
    assert sweep.begin("two")
    sweep.tell("one", 1)
    assert not sweep.begin("three"), "nobody knows whether the second place is there"
    sweep.tell("two", 1)
    sweep.tell("one", 1)
    assert sweep.begin("three")


def test_a_place_that_proved_to_be_taken_is_not_asked_again(sweep):
    """On a cluster where others work, the half begins when its giver has ended: then no more."""
    sweep.live = 2
    sweep.tell("one", 1)
    assert sweep.begin("two")
    sweep.jobs.on_trial_complete("one", {"runs": ended(sweep, "one")})
    sweep.tell("two", 1)
    assert not sweep.begin("three")
    assert sweep.sizes() == {"two": 3}
    sweep.live = 3
    sweep.tell("two", 1)
    assert sweep.begin("three"), "another machine has come"


def test_no_more_than_may_run_at_a_time(sweep):
    sweep.live, sweep.jobs.places = 9, 1
    sweep.tell("one", 1)
    assert not sweep.begin("two")


def test_a_half_has_not_died_before(sweep):
    for death in range(MAX_FAILURES):
        sweep.jobs.on_trial_complete("one" if death == 0 else f"again {death}", error=True)
        assert len(sweep.begin(f"again {death + 1}")) == 6
    sweep.live = 2
    sweep.tell(f"again {MAX_FAILURES}", 1)
    half = sweep.begin("two")
    sweep.jobs.on_trial_complete("two", error=True)
    assert sweep.begin("two again") == half


def ended(sweep, trial):
    return [(run, 9, 2.0, True) for run in sorted(sweep.jobs.runs[trial].going)]
