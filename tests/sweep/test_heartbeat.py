"""A trial that stands still is missed, killed and started again; nobody else is."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmzoo.sweep import heartbeat as pulse
from lmzoo.sweep.heartbeat import MISSED, HeartbeatMonitor

from .byhand import outcome, sweep
from .processes import epochs_on_disk, finish, training, wait_until


class Handle:
    """An actor's handle; its identity and its pulse are the same letter."""

    def __init__(self, name: str) -> None:
        self._actor_id = bytes.fromhex(name)


@pytest.fixture
def ray_stand_in(monkeypatch):
    """(numbers, killed): what Ray's store holds, and whom Ray was told to kill."""
    numbers, killed = {}, []
    store = pulse.internal_kv
    monkeypatch.setattr(store, "_internal_kv_get", lambda name, namespace: numbers[name])
    monkeypatch.setattr(store, "_internal_kv_del", lambda name, namespace: numbers.pop(name))
    monkeypatch.setattr(pulse.ray, "kill", lambda actor: killed.append(actor._actor_id.hex()))
    return numbers, killed


def _watch(pulses: HeartbeatMonitor, *actors: Handle) -> None:
    for actor in actors:
        trial = SimpleNamespace(temporary_state=SimpleNamespace(ray_actor=actor))
        pulses.on_trial_start(0, [], trial)


def test_who_stands_still_is_killed_once_and_who_beats_is_not(ray_stand_in):
    numbers, killed = ray_stand_in
    pulses, actors = HeartbeatMonitor(), [Handle("aa"), Handle("bb"), Handle("cc")]
    _watch(pulses, *actors)
    for look in range(4 * MISSED):
        numbers |= {"aa": b"7", "bb": b"%d" % look, "cc": None if look < MISSED - 1 else b"1"}
        if look < MISSED:
            assert not killed
        pulses.look()
        if look == MISSED + 2:
            assert killed == ["aa"], "it is given time from its first look on"
    assert killed == ["aa", "cc"]


def test_a_beat_in_the_last_moment_counts(ray_stand_in):
    numbers, killed = ray_stand_in
    pulses, actor = HeartbeatMonitor(), Handle("aa")
    _watch(pulses, actor)
    for look in range(5 * MISSED):
        numbers["aa"] = b"%d" % (look // MISSED)
        pulses.look()
    assert not killed


def test_a_sweep_that_cannot_look_blames_nobody(ray_stand_in, monkeypatch):
    numbers, killed = ray_stand_in
    pulses, actor = HeartbeatMonitor(), Handle("aa")
    _watch(pulses, actor)
    numbers["aa"] = b"1"
    pulses.look()

    def away(name, namespace):
        raise ConnectionError

    with monkeypatch.context() as cut_off:
        cut_off.setattr(pulse.internal_kv, "_internal_kv_get", away)
        for _ in range(3 * MISSED):
            pulses.look()
    numbers["aa"] = b"2"
    pulses.look()
    assert not killed


@pytest.mark.parametrize("failing", ["kill", "_internal_kv_del"])
def test_a_kill_that_fails_is_tried_again_and_keeps_nobody_else_alive(
    ray_stand_in, monkeypatch, failing
):
    numbers, killed = ray_stand_in
    pulses, actors = HeartbeatMonitor(), [Handle("aa"), Handle("bb")]
    _watch(pulses, *actors)
    numbers |= {"aa": b"7", "bb": b"7"}
    where = pulse.ray if failing == "kill" else pulse.internal_kv
    inner, failures = getattr(where, failing), []

    def fail_for_one(which, **more):
        if which in (actors[0], "aa") and len(failures) < 3:
            failures.append(which)
            raise ConnectionError
        inner(which, **more)

    monkeypatch.setattr(where, failing, fail_for_one)
    for _ in range(2 * MISSED):
        pulses.look()
    assert failures
    assert sorted(set(killed)) == ["aa", "bb"]


def test_an_actor_that_tune_let_go_is_forgotten_and_not_kept_alive(ray_stand_in):
    numbers, killed = ray_stand_in
    pulses, actor = HeartbeatMonitor(), Handle("aa")
    _watch(pulses, actor)
    numbers["aa"] = b"1"
    pulses.look()
    del actor
    for _ in range(2 * MISSED):
        pulses.look()
    assert not killed
    assert not numbers


def stop_one(driver: int, others: set[int]) -> int:
    """SIGSTOP a process that trains, and is none of the others."""
    pid = min(wait_until(lambda: set(training(driver)) - others, 900))
    os.kill(pid, signal.SIGSTOP)
    return pid


def still_there(pids: set[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("ray")
def test_stopped_trials_are_taken_up_again_and_the_sweep_ends_as_if_undisturbed(
    tmp_path, sweeping, study, corpus, corpus_fields
):
    store = tmp_path / "runs" / "toy-text"
    driver, stopped = sweeping(), set[int]()
    for epochs in (3, 10):
        wait_until(lambda epochs=epochs: epochs_on_disk(store) >= epochs, 900)
        stopped.add(stop_one(driver.pid, stopped))
    code, _, err = finish(driver, 1800)
    assert code == 0, err
    assert "a trial has shown no life for 60 s" in err
    assert not still_there(stopped)

    undisturbed = tmp_path / "byhand"
    assert sweep(study, corpus, corpus_fields, undisturbed)
    assert outcome(store) == outcome(undisturbed)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("ray")
def test_a_stopped_trial_does_not_keep_a_sweep_from_being_ended(tmp_path, sweeping):
    driver = sweeping()
    wait_until(lambda: epochs_on_disk(tmp_path / "runs" / "toy-text") >= 3, 900)
    stopped = {stop_one(driver.pid, set())}
    driver.send_signal(signal.SIGTERM)
    code, _, err = finish(driver, 900)
    assert code == 130, err
    wait_until(lambda: not still_there(stopped), 60)
