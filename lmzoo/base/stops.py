"""Signals that end a command: Ctrl-C, SIGTERM and SIGHUP.

SIGTERM comes from `kill`, `timeout`, scancel and service managers, often to all processes of a job
at once; SIGHUP from a terminal that closes. Both end a command as Ctrl-C does: `KeyboardInterrupt`
in the main thread, exit code 130. A shell ignores SIGINT for `COMMAND &`, and `nohup` SIGHUP: what
is ignored stays so. Standard library only.
"""

import atexit
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

HANDLED = {signal.SIGINT, signal.SIGTERM}
if hasattr(signal, "SIGHUP"):  # not on Windows
    HANDLED.add(signal.SIGHUP)
GRACE_SECONDS = 10.0
"""How long an orderly end may take after a signal; SLURM waits 30 s until it kills."""
HOPELESS_SECONDS = 1.0
"""The same when an orderly end has become impossible."""
REPEATED_SECONDS = 1.0
"""Signals that follow the first one so soon are the same request: `timeout` sends two."""


class Stops:
    """The handlers of this process; `requested` is set by the first signal."""

    def __init__(self):
        self.requested = threading.Event()
        self._first = 0.0
        """Time of the first signal."""
        self._deferred = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in this block; outside the main thread, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.requested.clear()
        previous = {number: signal.getsignal(number) for number in HANDLED}
        self.install()
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if self.requested.is_set():  # a signal while Python ends would kill it
                for number in previous:
                    atexit.register(signal.signal, number, signal.SIG_IGN)

    def install(self):
        """Handle the signals; called again after a library has installed handlers of its own."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in HANDLED:
            # By a shell or nohup: it stays so.
            is_ignored = signal.getsignal(number) is signal.SIG_IGN
            if number == signal.SIGTERM or not is_ignored:
                signal.signal(number, self._handle)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Let the first signal in this block only set `requested`, which the block looks at."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    @contextlib.contextmanager
    def deadline(self, end: Callable[[], object], hopeless: Callable[[], bool]) -> Iterator[None]:
        """Call `end` in a thread if the block does not end soon after a signal.

        The thread sees the signal at once, also while the main thread waits in a library and its
        handler cannot run.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # Python writes the number of each signal there, in whatever thread.
        reader, writer = socket.socketpair()
        writer.settimeout(0)
        ended = threading.Event()

        def watch():
            numbers = reader.recv(64)
            while HANDLED.isdisjoint(numbers):
                if not numbers:
                    return  # the block has ended
                numbers = reader.recv(64)
            deadline = time.monotonic() + GRACE_SECONDS
            while time.monotonic() < deadline and not hopeless():
                if ended.wait(0.2):
                    return
            # The main thread may be ending just now.
            if not ended.wait(HOPELESS_SECONDS):
                end()

        threading.Thread(target=watch, daemon=True).start()
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            ended.set()
            signal.set_wakeup_fd(previous)
            writer.close()

    def _handle(self, number: int, frame: Any):
        now = time.monotonic()
        if not self.requested.is_set():
            self._first = now
            self.requested.set()
            # The block ends when it is ready.
            if self._deferred:
                return
        elif now - self._first < REPEATED_SECONDS:
            return
        raise KeyboardInterrupt


STOPS = Stops()
"""Signals belong to the process."""
