"""A lock in a bucket: an object with the name of its owner, which expires unless it is renewed.

The owner creates the object with a put that fails if it exists, and renews it with puts that fail
if another process has written it. The age of the object is computed from times of S3 only, so the
clocks of the machines need not agree. An owner that could not renew stops writing before the lock
expires for others. Its clock runs while the machine is suspended.
"""

import json
import threading
import time

from lmzoo.base.errors import UserError
from lmzoo.lab.store.local_lock import in_use_error, process_name
from lmzoo.lab.store.retry import LOG, retry
from lmzoo.lab.store.s3_bucket import Bucket

EXPIRY = 30.0
"""Age in seconds at which other processes may take the lock."""
RENEWALS = 5
"""Number of renewals within `EXPIRY`."""
SAFE = 0.8
"""Fraction of `EXPIRY` after the last renewal in which the owner still writes."""


class S3Lock:
    """The lock object `key` of a bucket; `store` is the name of the store in messages."""

    def __init__(self, bucket: Bucket, key: str, store: str) -> None:
        self._bucket, self._key, self._store = bucket, key, store
        self._renewals, self._etag, self._renewed_at = 0, "", 0.0
        self._released = threading.Event()
        """Set when the lock is closed or lost."""
        self._renewer = threading.Thread(target=self._renew_until_released, daemon=True)

    def acquire(self, patience: float) -> None:
        """Take the lock and keep it renewed.

        Raises:
            UserError: Another process had it for `patience` seconds.
        """
        deadline = time.monotonic() + patience
        while not retry(self._try_acquire, self._store):
            if time.monotonic() >= deadline:
                raise in_use_error(self._store, self._owner())
            time.sleep(0.5)
        self._renewer.start()

    def check(self) -> None:
        """Check that this process still has the lock.

        Raises:
            UserError: The lock could not be renewed, so another process may have it.
        """
        if self._released.is_set() or not self._is_safe():
            raise UserError(
                f"{self._store}: the lock was lost because it could not be renewed in time; check "
                "the connection to S3 and run the same command again"
            )

    def close(self) -> None:
        """Release the lock."""
        lost = self._released.is_set()
        self._released.set()
        if self._renewer.is_alive():
            self._renewer.join()
        if not lost and self._is_safe():
            self._bucket.delete(self._key)

    def _is_safe(self) -> bool:
        """Return whether the last renewal is recent enough that no other process has the lock."""
        return _seconds() - self._renewed_at <= SAFE * EXPIRY

    def _try_acquire(self) -> bool:
        """Create the lock object or replace an expired one; return whether that succeeded."""
        try:
            self._put(IfNoneMatch="*")
            return True
        except FileExistsError:
            pass
        try:
            found = self._bucket.get(self._key)
            if found.age <= EXPIRY:
                return False
            self._put(IfMatch=found.etag)
        except (FileExistsError, FileNotFoundError):  # another process was faster
            return False
        return True

    def _put(self, **condition: str) -> None:
        """Write the lock object; the counter changes its content, and so its ETag, every time."""
        started = _seconds()
        self._renewals += 1
        body = json.dumps({"holder": process_name(), "renewed": self._renewals, "began": id(self)})
        self._etag = self._bucket.put(self._key, body.encode(), **condition)
        self._renewed_at = started

    def _renew_until_released(self) -> None:
        while not self._released.wait(EXPIRY / RENEWALS):
            self._renew()

    def _renew(self) -> None:
        try:
            self._put(IfMatch=self._etag)
        except (FileExistsError, FileNotFoundError):  # another process took or deleted it
            self._released.set()
        except (OSError, UserError) as error:
            LOG.warning("%s: the lock was not renewed: %s", self._store, error)

    def _owner(self) -> str:
        try:
            return json.loads(self._bucket.get(self._key).data)["holder"]
        except FileNotFoundError:
            return ""


def _seconds() -> float:
    """Return the seconds since the machine was started, suspended ones included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
