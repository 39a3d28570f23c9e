"""Writes in background threads, in order per key.

    writer.submit(run, write_checkpoint)     returns at once
    writer.submit(run, append_record)        starts after write_checkpoint is done
    writer.wait(run)                         returns when both are done

Actions of different keys run at the same time. When an action fails, the waiting actions of its key
are dropped, so that no file is written without the files before it, and the next `submit` or `wait`
of the key raises the error once. The owner of the key must then give up what it was writing.

**Retries.** A full disk and a server that does not answer often recover. An operation is repeated
with growing pauses, and the failure is logged once a minute for each cause. After `RETRY_SECONDS`
it fails with a `UserError`; in a read-only folder, or one of another account, at once. Standard
library only.
"""

import errno
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lmzoo.base.errors import UserError
from lmzoo.base.stops import STOPS

Action = Callable[[], object]

THREADS = 16
"""Actions that run at the same time; a request to a store mostly waits."""


class Writer:
    """A pool of threads that runs actions; the methods are thread-safe."""

    def __init__(self, threads: int = THREADS):
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lmzoo-writer")
        self._queues = dict[Hashable, deque[Action]]()
        """Actions by key; the first of each queue is running or about to run."""
        self._errors = dict[Hashable, BaseException]()
        self._changed = threading.Condition()

    def submit(self, key: Hashable, action: Action):
        """Run `action` after the earlier actions of the key; raise the error of one that failed."""
        with self._changed:
            self._raise_error(key)
            queue = self._queues.get(key, deque())
            if not queue:
                # One thread a key, which keeps the order of its actions.
                self._pool.submit(self._run_queue, key, queue)
            queue.append(action)
            self._queues[key] = queue

    def done(self, key: Hashable) -> bool:
        """Return whether all actions of the key are done; raise the error of one that failed."""
        with self._changed:
            self._raise_error(key)
            return key not in self._queues

    def wait(self, key: Hashable | None = None):
        """Wait for the actions of the key, or of all keys; raise the error of one that failed."""
        with self._changed:
            queues = self._queues
            if key is None:
                self._changed.wait_for(lambda: not queues)
                for failed in self._errors:
                    self._raise_error(failed)
            else:
                self._changed.wait_for(lambda: key not in queues)
                self._raise_error(key)

    def close(self):
        """Wait for all actions and end the threads; raise the error of an action that failed."""
        self._pool.shutdown()
        self.wait()

    def _raise_error(self, key: Hashable):
        if key in self._errors:
            raise self._errors.pop(key)

    def _run_queue(self, key: Hashable, queue: deque[Action]):
        """Run the actions of one key until its queue is empty or an action fails."""
        while True:
            with self._changed:
                action = queue[0]
            error = None
            try:
                action()
            except BaseException as caught:
                error = caught
            with self._changed:
                queue.popleft()  # only now: `wait` waits for what is in the queue
                if error is not None:
                    self._errors[key] = error
                    queue.clear()  # no file is written without the files before it
                if not queue:
                    del self._queues[key]
                    self._changed.notify_all()
                    return


Value = TypeVar("Value")

NEWS_SECONDS = 60.0
"""Time between two lines of one cause."""


class News:
    """Logs a line about each cause, such as a full disk, at most once a minute."""

    def __init__(self, log: logging.Logger):
        self._log = log
        self._said = dict[Hashable, float]()

    def say(self, cause: Hashable, now: float, text: str, *values: object):
        """Log a warning, unless one of this cause was logged in the last minute."""
        if now >= self._said.get(cause, -math.inf) + NEWS_SECONDS:
            self._said[cause] = now
            self._log.warning(text, *values)


RETRY_SECONDS = 60.0
"""Time after which an operation is given up, in seconds."""
MAX_PAUSE = 8.0
"""Longest pause between two attempts, in seconds."""
TRANSIENT_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOTCONN,
}  # fmt: skip
"""Error numbers that are retried. Any other error is raised at once."""
REMEDIES = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), ": make space there, and it goes on")
LOG = logging.getLogger("lmzoo.lab.store")
NEWS = News(LOG)


def retry(action: Callable[[], Value], target: str) -> Value:
    """Call `action` until it succeeds and return its value.

    It must be safe to repeat after it failed halfway. A `UserError` names the `target`, a file or a
    folder, if it still failed after `RETRY_SECONDS` or a signal, or the error is not transient. A
    FileExistsError and a FileNotFoundError are answers, not failures, and are raised unchanged.
    """
    deadline = time.monotonic() + RETRY_SECONDS
    pause = 0.25
    while True:
        try:
            return action()
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as error:
            # A read-only folder, or one of another account, does not recover by itself.
            if error.errno not in TRANSIENT_ERRORS:
                reason = error.strerror or str(error)
                raise UserError(f"{target}: {reason}; fix this or choose another store") from error
            remaining = deadline - time.monotonic()
            # A sweep that is to stop does not wait for a disk.
            if remaining <= 0 or STOPS.requested.is_set():
                raise UserError(
                    f"{target}: {error.strerror}, still after {RETRY_SECONDS - remaining:.0f} s; "
                    "no written record is lost: fix this and run the same command again"
                ) from error
            text = "%s: %s; retrying for %.0f s more" + REMEDIES.get(error.errno, "")
            NEWS.say(error.errno, time.monotonic(), text, target, error.strerror, remaining)
            time.sleep(max(0.0, min(pause, MAX_PAUSE, remaining)))
            pause *= 2
