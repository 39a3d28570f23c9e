"""Transient errors are retried and logged; other errors end in one line."""

import errno
import logging
import os

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store import writer as retry_module
from lmzoo.lab.store.writer import RETRY_SECONDS, retry


@pytest.fixture
def pauses(monkeypatch):
    """Record the pauses; the clock advances by them only."""
    clock, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(retry_module.time, "sleep", sleep)
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.ESTALE])
def test_transient_errors_are_retried_and_logged(pauses, caplog, number):
    with caplog.at_level(logging.WARNING, "lmzoo.lab.store"):
        assert retry(failing_action(4, number), "runs/x") == 5
    assert pauses == [0.25, 0.5, 1.0, 2.0]
    assert len(caplog.messages) == 4
    assert all(f"runs/x: {os.strerror(number)}" in text for text in caplog.messages)


def test_retrying_ends_after_the_limit_with_one_line(pauses):
    with pytest.raises(UserError, match=r"runs/x: No space left.*, still after 60 s") as caught:
        retry(failing_action(10**9, errno.ENOSPC), "runs/x")
    assert "\n" not in str(caught.value)
    assert pauses == [0.25, 0.5, 1, 2, 4, *[8] * 6, 4.25]
    assert sum(pauses) == RETRY_SECONDS


def test_other_errors_are_raised_at_once(pauses):
    for number in (errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM):
        with pytest.raises(UserError, match=rf"^runs/x: {os.strerror(number)}; .* another store$"):
            retry(failing_action(1, number), "runs/x")
    for number in (errno.EEXIST, errno.ENOENT):  # unchanged
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            retry(failing_action(1, number), "runs/x")
        assert caught.value.errno == number
    assert not pauses
