"""A lock in a bucket: an object with the holder's name, which lasts unless it is renewed.

The object is created by a put that S3 refuses if there is one, and renewed by puts that S3
refuses if somebody else has written it since. Age is the difference of two times that S3
itself tells, so machines' clocks need not agree. A holder that could not renew in time
stops writing before anyone may take over.
"""

import json
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

from lmzoo.errors import UserError
from lmzoo.store.local import Store, in_use_error, process_name
from lmzoo.store.retry import LOG, retry

LASTS = 30.0
"""Seconds after which a lease that was not renewed is over."""
RENEWALS = 5
"""How often it is renewed in that time."""


class S3Lock:
    """The lease object that `call(method, **given)` reaches."""

    def __init__(self, call: Callable[..., Any], where: Store) -> None:
        self._call, self._where = call, where
        self._count, self._etag, self._sure = 0, "", 0.0
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew_until_ended, daemon=True)

    def taken(self, patience: float) -> "Lease":
        """This lease, once it is ours.

        Raises:
            UserError: another holder kept it for `patience` seconds.
        """
        deadline = time.monotonic() + patience
        while not retry(self._take, f"{self._where}"):
            if time.monotonic() >= deadline:
                raise in_use_error(self._where, self._holder())
            time.sleep(0.5)
        self._renewer.start()
        return self

    def check(self) -> None:
        """Assure that the lease is still ours.

        Raises:
            UserError: it could not be renewed, so another may go on with the run.
        """
        if self._ended.is_set() or time.monotonic() - self._sure > LASTS * 0.8:
            raise UserError(f"{self._where} is no longer held: its lease could not be renewed")

    def close(self) -> None:
        """Give the lease up."""
        was_ours = not self._ended.is_set()
        self._ended.set()
        if self._renewer.is_alive():
            self._renewer.join()
        if was_ours and time.monotonic() - self._sure < LASTS * 0.8:
            self._call("delete_object")

    def _take(self) -> bool:
        """Create the lease, or take over one that is over; whether it is ours now."""
        try:
            self._put(IfNoneMatch="*")
            return True
        except FileExistsError:
            found = self._call("get_object")
        if found is None:
            return False
        now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
        if (now - found["LastModified"]).total_seconds() <= LASTS:
            return False
        try:
            self._put(IfMatch=found["ETag"])
        except FileExistsError:
            return False
        return True

    def _put(self, **condition: str) -> None:
        """Write the lease; the count makes every put another object."""
        asked = time.monotonic()
        self._count += 1
        body = json.dumps({"holder": process_name(), "renewed": self._count, "began": id(self)})
        answer = self._call("put_object", Body=body.encode(), **condition)
        if answer is None:
            raise FileExistsError(f"{self._where}: its lease is gone")
        self._etag = answer["ETag"]
        self._sure = asked

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(LASTS / RENEWALS):
            self._renew()

    def _renew(self) -> None:
        try:
            self._put(IfMatch=self._etag)
        except FileExistsError:  # somebody else has it
            self._ended.set()
        except (OSError, UserError) as error:
            LOG.warning("%s: its lease is not renewed: %s", self._where, error)

    def _holder(self) -> str:
        found = self._call("get_object")
        return "" if found is None else json.loads(found["Body"])["holder"]
