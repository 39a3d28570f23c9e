"""A store in an S3 bucket: the same interface and file names as a folder.

S3 replaces an object atomically and verifies its checksum, so no backup is kept. A line is appended
by writing the whole object again, whose content the owner of the lock remembers. A request takes
tens of milliseconds, so those for several runs are sent together, and epochs are collected.

Every write is conditional: an object is created only if there is none, and replaced only if it is
the one that this process has read or written last (its ETag). So an owner that was frozen, and
whose lock has expired, erases nothing.

obstore hangs in forked processes, and does not return the time of S3, which the lock needs.

Errors are those of a file system: FileNotFoundError (no such object), FileExistsError (the
condition of a put does not hold), OSError with EHOSTUNREACH (S3 is away or overloaded, so the
request is worth a retry), and UserError (no permission, no such bucket, no credentials).

**The lock** is an object with the name of its owner, which creates and renews it by conditional
puts. Its age is computed from times of S3 only. An owner that could not renew stops writing before
the lock expires for others; its clock runs while the machine is suspended.
"""

import errno
import json
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from fnmatch import fnmatch
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from lmzoo.base.errors import UserError, writing
from lmzoo.base.foreign import all_below
from lmzoo.lab.store.local import (
    THREADS,
    Content,
    Lock,
    Store,
    pieces,
    process_name,
    retried,
    temporary_folder,
)
from lmzoo.lab.store.writer import LOG, retry

LINES = ".ndjson"
"""End of the names of files to which lines are appended."""
CONNECTIONS = 32
"""Maximum number of connections to S3."""


class StoredObject(NamedTuple):
    """An object as it was read."""

    data: bytes
    etag: str
    age: float
    """Seconds since it was written, by the clock of S3."""


class Bucket:
    """A bucket; the methods are thread-safe."""

    def __init__(self, name: str):
        if find_spec("boto3") is None:
            raise UserError("s3:// needs boto3; run `pip install boto3`")
        self.name = name

    def get(self, key: str) -> StoredObject:
        with _translate_errors(f"s3://{self.name}/{key}"):
            response = _client().get_object(Bucket=self.name, Key=key)
            # By the clock of S3: that of this machine may be wrong.
            now = parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
            age = (now - response["LastModified"]).total_seconds()
            return StoredObject(response["Body"].read(), response["ETag"], age)

    def put(self, key: str, data: bytes, **condition: str) -> str:
        """Write an object, under `IfMatch` or `IfNoneMatch` if given, and return its ETag.

        A put whose answer was lost is repeated by boto, and then finds its own object.
        """
        try:
            with _translate_errors(f"s3://{self.name}/{key}"):
                put = _client().put_object
                return put(Bucket=self.name, Key=key, Body=data, **condition)["ETag"]
        except FileExistsError as error:
            if not getattr(error, "repeated", False):
                raise
            found = self.get(key)
            if found.data != data:
                raise
            return found.etag

    def delete(self, key: str):
        """Delete an object, whether it exists or not."""
        with suppress(FileNotFoundError), _translate_errors(f"s3://{self.name}/{key}"):
            _client().delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that start with `prefix`."""
        with _translate_errors(f"s3://{self.name}/{prefix}"):
            pages = _client().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=prefix):
                for entry in page.get("Contents", ()):
                    yield entry["Key"]


@contextmanager
def _translate_errors(target: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        # A missing object is an answer, a missing bucket a mistake of the user.
        if status == 404 and code != "NoSuchBucket":
            raise FileNotFoundError(errno.ENOENT, code, target) from None
        if status in (409, 412):  # the condition of a put does not hold
            conflict: Any = FileExistsError(errno.EEXIST, code, target)
            conflict.repeated = error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0
            raise conflict from None
        if status >= 500 or status == 429:  # worth a retry
            raise OSError(errno.EHOSTUNREACH, f"S3 answers {code}", target) from None
        raise UserError(
            f"{target}: S3 refuses {error.operation_name}: {code}; check the bucket and its policy"
        ) from None
    except (ConnectionError, HTTPClientError) as error:
        raise OSError(errno.EHOSTUNREACH, f"S3 does not answer ({error})", target) from None
    except BotoCoreError as error:
        raise UserError(f"{target}: {error}") from None


@cache
def _client() -> Any:
    # Code of buckets is loaded for a bucket only.
    import boto3
    from botocore.config import Config

    settings = Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": 3},
        max_pool_connections=CONNECTIONS,
    )
    return boto3.client("s3", config=settings)


EXPIRY = 30.0
"""Age in seconds at which other processes may take the lock."""
RENEWALS = 5
"""Number of renewals within `EXPIRY`."""
SAFE = 0.8
"""Fraction of `EXPIRY` after the last renewal in which the owner still writes."""


class S3Lock(Lock):
    """A lock object of a bucket."""

    pause = 0.5

    def __init__(self, bucket: Bucket, key: str, store: str):
        self._store = store
        self._target = f"s3://{bucket.name}/{key}"
        self._bucket = bucket
        self._key = key
        self._etag = ""
        self._renewed_at = -math.inf
        self._released = threading.Event()
        """Set when the lock is closed or lost."""
        self._renewer = threading.Thread(target=self._keep_renewed, daemon=True)

    def acquire(self, patience: float):
        """Take the lock, see `Lock`, and keep it renewed."""
        super().acquire(patience)
        self._renewer.start()

    def check(self):
        """Raise a `UserError` if the lock could not be renewed: another process may have it."""
        if self._released.is_set() or not self._is_safe():
            raise UserError(
                f"{self._store}: the lock was lost because it could not be renewed in time; check "
                "the connection to S3 and run the same command again"
            )

    def close(self):
        lost = self._released.is_set()
        self._released.set()
        if self._renewer.is_alive():
            self._renewer.join()
        if not lost and self._is_safe():  # else another process may have it by now
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
            start = json.dumps(self._name()).removesuffix("}")
            is_own = found.data.startswith(f"{start},".encode())
            if found.age <= EXPIRY and not is_own:  # its own: the answer of a put was lost
                return False
            self._put(IfMatch=found.etag)
        except (FileExistsError, FileNotFoundError):  # another process was faster
            return False
        return True

    def _put(self, **condition: str):
        """Write the lock object; the time changes its content, and so its ETag, every time."""
        started = _seconds()
        body = json.dumps(self._name() | {"renewed": started})
        self._etag = self._bucket.put(self._key, body.encode(), **condition)
        self._renewed_at = started  # not now: the put may have taken long

    def _name(self) -> dict[str, Any]:
        return {"holder": process_name(), "began": id(self)}

    def _keep_renewed(self):
        while not self._released.wait(EXPIRY / RENEWALS):
            self._renew()

    def _renew(self):
        try:
            self._put(IfMatch=self._etag)
        except (FileExistsError, FileNotFoundError):  # another process took or deleted it
            self._released.set()
        except (OSError, UserError) as error:
            # The next renewal may succeed; if none does, `check` stops the writes in time.
            LOG.warning("%s: the lock was not renewed: %s", self._store, error)

    def _read_owner(self) -> str | None:
        try:
            return json.loads(self._bucket.get(self._key).data)["holder"]
        except FileNotFoundError:
            return None


def _seconds() -> float:
    """Return the seconds since the machine was started, suspended ones included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class S3Store(Store):
    """Objects below one prefix of a bucket; `path` is a temporary folder of this process."""

    save_seconds = 10.0

    def __init__(self, bucket: Bucket, prefix: str, parent: "S3Store | None" = None):
        self.bucket = bucket
        self.prefix = prefix
        self._prefetched = dict[str, StoredObject | None]()
        """Objects by key, shared with the stores of subfolders; the first read removes them."""
        if parent is not None:
            self._prefetched = parent._prefetched
        self._etags = dict[str, str]()
        """Name -> ETag of the object that was read or written last; "" if there was none."""
        self._appended = dict[str, bytes]()
        """Content, by name, of objects that only this process appends to: it has the lock."""
        super().__init__(_scratch_folder(os.getpid()) / bucket.name / prefix, parent)

    def __truediv__(self, name: str) -> "S3Store":
        return S3Store(self.bucket, f"{self.prefix}/{name}".strip("/"), self)

    def __str__(self) -> str:
        return f"s3://{self.bucket.name}/{self.prefix}"

    @property
    def address(self) -> str:
        return str(self)

    def read(self, name: str) -> bytes | None:
        """See `Store.read`; the first read returns the prefetched content, if there is any."""
        key = self._key(name)
        if key in self._prefetched:
            return self._know(name, self._prefetched.pop(key))
        return retry(lambda: self._read(name), f"{self}/{name}")

    def prefetch(self, name: str) -> set[str]:
        # One listing for all runs: a request takes tens of milliseconds.
        folders = set[str]()
        wanted = []
        for path in self.names():
            folder, slash, _ = path.partition("/")
            if slash:
                folders.add(folder)
            if Path(path).name == name:
                wanted.append(path)
        self.read_ahead(wanted)
        return folders

    def read_ahead(self, names: Iterable[str]):
        for name, found in self._get_together(names):
            self._prefetched[self._key(name)] = found

    @retried
    def create(self, name: str, data: bytes):
        self._put(name, data, IfNoneMatch="*")

    @retried
    def write(self, name: str, data: Content, backup: str = ""):
        self._appended.pop(name, None)
        whole = b"".join(pieces(data))
        # Only what this process has read or written last is replaced.
        if name in self._etags or not self._put_new(name, whole):
            self._put_known(name, whole)

    def overwrite(self, name: str, data: Content):
        """See `Store.overwrite`; S3 replaces the object."""
        self.write(name, data)

    @retried
    def append(self, name: str, line: str):
        """See `Store.append`; the object is written again."""
        data = line.encode() + b"\n"
        if name in self._etags or not self._put_new(name, data):
            # The owner of the lock need not read the object again for each line.
            known = self._appended.get(name)
            if known is None:
                known = self._read(name) or b""
            data = known + data
            self._put_known(name, data)
        self._keep(name, data)

    def take_over(self, name: str):
        """Do nothing: writes are conditional."""

    def local_copy(self, patterns: Iterable[str]) -> Path:
        """Download the objects whose last path segment matches a pattern."""
        folder = temporary_folder("fetched")
        wanted = tuple(patterns)
        names = [
            path
            for path in self.names()
            if any(fnmatch(Path(path).name, pattern) for pattern in wanted)
        ]
        # Keys of a bucket may lead out of the folder.
        paths = all_below(folder, names)
        for name, found in self._get_together(names):
            if found is not None:
                with writing(paths[name]):
                    paths[name].write_bytes(found.data)
        return folder

    def names(self) -> list[str]:
        """Return the names of all objects in this store, subfolders included."""
        start = self._key("")
        keys = retry(lambda: list(self.bucket.keys(start)), str(self))
        return [key.removeprefix(start) for key in keys]

    def _get_together(self, names: Iterable[str]) -> Iterator[tuple[str, StoredObject | None]]:
        def get(name: str) -> tuple[str, StoredObject | None]:
            return name, retry(lambda: self._get(name), f"{self}/{name}")

        # One after another, the requests would take tens of milliseconds each.
        with ThreadPoolExecutor(THREADS) as pool:
            yield from pool.map(get, names)

    def _new_lock(self, name: str) -> Lock:
        return S3Lock(self.bucket, self._key(name), str(self))

    def _lock_names(self, pattern: str) -> list[str]:
        start, _, _ = pattern.partition("*")
        found = []
        for key in self.bucket.keys(self._key(start)):
            name = key.removeprefix(self._key(""))
            if "/" not in name and fnmatch(name, pattern):
                found.append(name)
        return found

    def _read(self, name: str) -> bytes | None:
        return self._know(name, self._get(name))

    def _get(self, name: str) -> StoredObject | None:
        try:
            return self.bucket.get(self._key(name))
        except FileNotFoundError:
            return None

    def _know(self, name: str, found: StoredObject | None) -> bytes | None:
        """Remember what an append of an object that was read needs, and return its content."""
        etag = ""
        data = None
        if found is not None:
            etag = found.etag
            data = found.data
        self._etags[name] = etag
        if name.endswith(LINES):
            self._keep(name, data or b"")
        return data

    def _keep(self, name: str, data: bytes):
        """Keep the content of a file of lines, if only this process may append to it."""
        store: Store | None = self
        while store is not None and store._lock is None:
            store = store._parent
        if store is not None:
            self._appended[name] = data

    def _put_new(self, name: str, data: bytes) -> bool:
        """Create an object; return False if another one exists, whose ETag is known then."""
        try:
            self._put(name, data, IfNoneMatch="*")
        except FileExistsError:
            # An earlier attempt may have created it, and its answer was lost.
            return self._read(name) == data
        return True

    def _put_known(self, name: str, data: bytes):
        """Replace the object that was read or written last, unless another process has."""
        condition = {"IfNoneMatch": "*"}
        etag = self._etags[name]
        if etag:
            condition = {"IfMatch": etag}
        try:
            self._put(name, data, **condition)
        except (FileExistsError, FileNotFoundError):
            if self._read(name) != data:  # else an earlier attempt of this request succeeded
                raise UserError(
                    f"{self}/{name} was written by another process while this one did not "
                    "respond; wait for it to end and run the same command again"
                ) from None

    def _put(self, name: str, data: bytes, **condition: str):
        self._check_lock()
        # What was read in advance is older than this.
        self._prefetched.pop(self._key(name), None)
        self._etags[name] = self.bucket.put(self._key(name), data, **condition)

    @retried
    def delete(self, name: str):
        self._check_lock()
        self._appended.pop(name, None)
        self._etags.pop(name, None)
        self.bucket.delete(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")


@cache
def _scratch_folder(process_id: int) -> Path:
    """Return the temporary folder of a process; a forked process gets its own."""
    return temporary_folder("scratch")
