"""Actions of one key run in order, those of other keys together; transient errors are retried."""

import errno
import logging
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store import writer as retry_module
from lmzoo.lab.store.writer import News, Writer, retry


@pytest.fixture
def writer():
    writer = Writer(threads=8)
    yield writer
    writer._pool.shutdown()


def fail():
    raise UserError("the disk is full")


def test_actions_of_a_key_run_in_order_and_one_at_a_time(writer):
    done: dict[int, list[int]] = {key: [] for key in range(20)}
    running: set[int] = set()

    def act(key: int, number: int) -> None:
        assert key not in running
        running.add(key)
        time.sleep(random.random() * 2e-4)
        done[key].append(number)
        running.remove(key)

    def submit(thread: int) -> None:
        for number in range(thread, 160, 8):
            for key in done:
                writer.submit(key, lambda key=key, number=number: act(key, number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(submit, range(8)))
    writer.wait()
    for numbers in done.values():
        assert sorted(numbers) == list(range(160))
        assert all(numbers.index(n) < numbers.index(n + 8) for n in range(152))
    assert not writer._queues


def test_a_slow_key_keeps_its_order_and_holds_up_no_other(writer):
    """As on a full disk, where an action waits in its thread."""
    space = threading.Event()
    done = []
    writer.submit("full", lambda: (space.wait(60), done.append("checkpoint")))
    writer.submit("full", lambda: done.append("record"))
    writer.submit("other", lambda: done.append("other"))
    writer.wait("other")
    assert done == ["other"]
    assert writer.done("other")
    assert not writer.done("full")
    space.set()
    writer.wait()
    assert done == ["other", "checkpoint", "record"]
    assert writer.done("full")


@pytest.mark.parametrize("call", ["submit", "wait", "done", "wait for all", "close"])
def test_a_failed_action_drops_the_later_ones_of_its_key_and_is_raised_once(writer, call):
    begin = threading.Event()
    done = []
    writer.submit("a", lambda: begin.wait() and fail())
    writer.submit("a", lambda: done.append("after the failure"))
    writer.submit("b", lambda: done.append("other"))
    begin.set()
    while "a" in writer._queues:
        time.sleep(1e-3)
    calls = {
        "submit": lambda: writer.submit("a", lambda: done.append("refused")),
        "wait": lambda: writer.wait("a"),
        "done": lambda: writer.done("a"),
        "wait for all": writer.wait,
        "close": writer.close,
    }
    writer.wait("b")
    with pytest.raises(UserError, match="the disk is full"):
        calls[call]()
    writer.wait()
    if call != "close":
        writer.submit("a", lambda: done.append("again"))
        writer.wait("a")
    assert done == ["other", "again"][: 1 + (call != "close")]


@pytest.fixture
def pauses(monkeypatch):
    """Record the pauses; the clock advances by them only."""
    clock = [0.0]
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(retry_module.time, "sleep", sleep)
    monkeypatch.setattr(retry_module, "NEWS", News(retry_module.LOG))
    monkeypatch.setattr(retry_module.time, "monotonic", lambda: clock[0])
    return pauses


def failing_action(failures, number):
    """Return an action that fails `failures` times, then returns how often it was called."""
    calls = []

    def action():
        calls.append(1)
        if len(calls) <= failures:
            raise OSError(number, os.strerror(number))
        return len(calls)

    return action


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE])
def test_transient_errors_are_retried_and_logged(pauses, caplog, number):
    with caplog.at_level(logging.WARNING, "lmzoo.lab.store"):
        assert retry(failing_action(4, number), "runs/x") == 5
    assert pauses == [0.25, 0.5, 1.0, 2.0]
    assert len(caplog.messages) == 1, "one line a minute of each cause"
    assert f"runs/x: {os.strerror(number)}" in caplog.text
    assert ("make space there" in caplog.text) == (number != errno.ESTALE)


@pytest.mark.parametrize("stopped", [False, True])
def test_retrying_ends_after_the_limit_or_a_signal(pauses, stopped, monkeypatch):
    monkeypatch.setattr(retry_module.STOPS.requested, "is_set", lambda: stopped)
    with pytest.raises(UserError, match=rf"^runs/x: No space left.* {60 - 60 * stopped} s; no .*$"):
        retry(failing_action(10**9, errno.ENOSPC), "runs/x")
    assert pauses == ([] if stopped else [0.25, 0.5, 1, 2, 4, *[8] * 6, 4.25])


def test_other_errors_are_raised_at_once(pauses):
    for number in (errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS):
        with pytest.raises(UserError, match=rf"^runs/x: {os.strerror(number)}; .* another store$"):
            retry(failing_action(1, number), "runs/x")
    for number in (errno.EEXIST, errno.ENOENT):  # unchanged
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            retry(failing_action(1, number), "runs/x")
        assert caught.value.errno == number
    assert not pauses
