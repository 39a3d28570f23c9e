"""Writes in background threads, in order per key.

    writer.submit(run, write_checkpoint)     returns at once
    writer.submit(run, append_record)        starts after write_checkpoint is done
    writer.wait(run)                         returns when both are done

Actions of different keys run at the same time. When an action fails, the waiting actions of its key
are dropped, so that no file is written without the files before it, and the next `submit` or `wait`
of the key raises the error once. The owner of the key must then give up what it was writing.
Standard library only.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

Action = Callable[[], object]

THREADS = 16
"""Actions that run at the same time; a request to a store mostly waits."""


class Writer:
    """A pool of threads that runs actions; the methods are thread-safe."""

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lmzoo-writer")
        self._queues: dict[Hashable, deque[Action]] = {}
        """Actions by key; the first of each queue is running or about to run."""
        self._errors: dict[Hashable, BaseException] = {}
        self._changed = threading.Condition()

    def submit(self, key: Hashable, action: Action) -> None:
        """Run `action` after the earlier actions of the key.

        Raises:
            BaseException: The error of an earlier action of the key; `action` is dropped.
        """
        with self._changed:
            self._raise_error(key)
            queue = self._queues.get(key, deque())
            if not queue:
                self._pool.submit(self._run_queue, key, queue)
            queue.append(action)
            self._queues[key] = queue

    def done(self, key: Hashable) -> bool:
        """Return whether all actions of the key are done; raise the error of one that failed."""
        with self._changed:
            self._raise_error(key)
            return key not in self._queues

    def wait(self, key: Hashable | None = None) -> None:
        """Block until the actions of the key, or of all keys, are done.

        Raises:
            BaseException: The error of an action.
        """
        with self._changed:
            if key is not None:
                self._changed.wait_for(lambda: key not in self._queues)
                self._raise_error(key)
                return
            self._changed.wait_for(lambda: not self._queues)
            for failed in list(self._errors):
                self._raise_error(failed)

    def close(self) -> None:
        """Wait for all actions and end the threads.

        Raises:
            BaseException: The error of an action.
        """
        self._pool.shutdown()
        self.wait()

    def _raise_error(self, key: Hashable) -> None:
        if key in self._errors:
            raise self._errors.pop(key)

    def _run_queue(self, key: Hashable, queue: deque[Action]) -> None:
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
                queue.popleft()
                if error is not None:
                    self._errors[key] = error
                    queue.clear()
                if not queue:
                    del self._queues[key]
                    self._changed.notify_all()
                    return
