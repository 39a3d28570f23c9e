"""A worker without a heartbeat is killed and restarted; the other workers are not."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmzoo.sweep import heartbeat
from lmzoo.sweep.heartbeat import MAX_MISSED, HeartbeatMonitor

from .local_sweep import outcome, sweep
from .processes import epochs_on_disk, finish, slow_ray_test, training_processes, wait_until


class Handle:
    """The handle of an actor with this id, two hexadecimal digits."""

    def __init__(self, actor_id: str) -> None:
        self._actor_id = bytes.fromhex(actor_id)


@pytest.fixture
def fake_ray(monkeypatch):
    """(numbers, killed): the content of Ray's key-value store, and the actors killed by Ray."""
    numbers, killed = {}, []
    store = heartbeat.internal_kv
    monkeypatch.setattr(store, "_internal_kv_get", lambda name, namespace: numbers[name])
    monkeypatch.setattr(store, "_internal_kv_del", lambda name, namespace: numbers.pop(name))
    monkeypatch.setattr(heartbeat.ray, "kill", lambda actor: killed.append(actor._actor_id.hex()))
    return numbers, killed


def monitor(*actors: Handle) -> HeartbeatMonitor:
    """Return a monitor of these actors."""
    result = HeartbeatMonitor()
    for actor in actors:
        trial = SimpleNamespace(temporary_state=SimpleNamespace(ray_actor=actor))
        result.on_trial_start(0, [], trial)
    return result


def test_an_actor_without_a_heartbeat_is_killed_once_and_others_are_not(fake_ray):
    numbers, killed = fake_ray
    actors = [Handle("aa"), Handle("bb"), Handle("cc")]
    monitored = monitor(*actors)
    for check in range(4 * MAX_MISSED):
        numbers |= {"aa": b"7", "bb": b"%d" % check, "cc": None if check < MAX_MISSED - 1 else b"1"}
        if check < MAX_MISSED:
            assert not killed
        monitored.check()
        if check == MAX_MISSED + 2:
            assert killed == ["aa"], "missed checks are counted from the first number on"
    assert killed == ["aa", "cc"]


def test_a_heartbeat_before_the_last_check_counts(fake_ray):
    numbers, killed = fake_ray
    actor = Handle("aa")
    monitored = monitor(actor)
    for check in range(5 * MAX_MISSED):
        numbers["aa"] = b"%d" % (check // MAX_MISSED)
        monitored.check()
    assert not killed


def test_checks_that_fail_are_not_counted(fake_ray, monkeypatch):
    numbers, killed = fake_ray
    actor = Handle("aa")
    monitored = monitor(actor)
    numbers["aa"] = b"1"
    monitored.check()

    def fail(name, namespace):
        raise ConnectionError

    with monkeypatch.context() as disconnected:
        disconnected.setattr(heartbeat.internal_kv, "_internal_kv_get", fail)
        for _ in range(3 * MAX_MISSED):
            monitored.check()
    numbers["aa"] = b"2"
    monitored.check()
    assert not killed


@pytest.mark.parametrize("method", ["kill", "_internal_kv_del"])
def test_a_kill_that_fails_is_attempted_again_and_other_actors_are_killed(
    fake_ray, monkeypatch, method
):
    numbers, killed = fake_ray
    actors = [Handle("aa"), Handle("bb")]
    monitored = monitor(*actors)
    numbers |= {"aa": b"7", "bb": b"7"}
    owner = heartbeat.ray if method == "kill" else heartbeat.internal_kv
    inner, failures = getattr(owner, method), []

    def fail_for_the_first(target, **options):
        if target in (actors[0], "aa") and len(failures) < 3:
            failures.append(target)
            raise ConnectionError
        inner(target, **options)

    monkeypatch.setattr(owner, method, fail_for_the_first)
    for _ in range(2 * MAX_MISSED):
        monitored.check()
    assert failures
    assert sorted(set(killed)) == ["aa", "bb"]


def test_an_actor_that_ray_tune_has_released_is_not_monitored_and_not_kept_alive(fake_ray):
    numbers, killed = fake_ray
    actor = Handle("aa")
    monitored = monitor(actor)
    numbers["aa"] = b"1"
    monitored.check()
    del actor
    for _ in range(2 * MAX_MISSED):
        monitored.check()
    assert not killed
    assert not numbers


def stop_worker(driver: int, stopped: set[int]) -> int:
    """Send SIGSTOP to a training process that is not yet stopped; return its process id."""
    pid = min(wait_until(lambda: set(training_processes(driver)) - stopped, 900))
    os.kill(pid, signal.SIGSTOP)
    return pid


def existing(pids: set[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@slow_ray_test
def test_a_sweep_with_stopped_workers_ends_with_the_same_records(
    tmp_path, start_sweep, study, corpus, corpus_fields
):
    store = tmp_path / "runs" / "toy-text"
    driver, stopped = start_sweep(), set[int]()
    for epochs in (3, 10):
        wait_until(lambda epochs=epochs: epochs_on_disk(store) >= epochs, 900)
        stopped.add(stop_worker(driver.pid, stopped))
    code, _, err = finish(driver, 1800)
    assert code == 0, err
    assert "a worker has sent no heartbeat for 60 s" in err
    assert not existing(stopped)

    undisturbed = tmp_path / "undisturbed"
    assert sweep(study, corpus, corpus_fields, undisturbed)
    assert outcome(store) == outcome(undisturbed)


@slow_ray_test
def test_a_sweep_with_a_stopped_worker_can_be_interrupted(tmp_path, start_sweep):
    driver = start_sweep()
    wait_until(lambda: epochs_on_disk(tmp_path / "runs" / "toy-text") >= 3, 900)
    stopped = {stop_worker(driver.pid, set())}
    driver.send_signal(signal.SIGTERM)
    code, _, err = finish(driver, 900)
    assert code == 130, err
    wait_until(lambda: not existing(stopped), 60)
