"""A store in an S3 bucket: `s3://bucket/prefix` is a place like any folder.

S3 has neither append nor lock. One process at a time holds a run (`lmzoo/store/s3_lock.py`), so to
append is to get the object, add the line and put it back; a put is seen whole or not at
all. Nothing but TensorBoard's events lies on the local disk, so that whoever goes on with
a run, on whatever machine, finds all there is.

Credentials, region and endpoint are boto3's: environment, profile or the machine's role.
"""

import atexit
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from lmzoo.errors import UserError
from lmzoo.store.local import Lock, Store
from lmzoo.store.retry import LOG, retry
from lmzoo.store.s3_lock import S3Lock

THREADS = 16
"""Downloads at a time."""


class S3Store(Store):
    """A prefix of a bucket; `path` is a scratch folder of this process."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket, self.prefix = bucket, prefix
        self._lease: S3Lock | None = None
        self._recalled: dict[str, bytes] = {}
        """Key -> what was there, of objects that were read beforehand and not yet asked for."""
        super().__init__(_scratch(os.getpid()) / bucket / prefix)

    @classmethod
    def at(cls, where: str) -> "BucketPlace":
        """The place named `bucket/prefix`."""
        bucket, _, prefix = where.partition("/")
        if not bucket:
            raise UserError("'s3://' names no bucket; write s3://bucket/prefix")
        return cls(bucket, prefix.strip("/"))

    def __truediv__(self, name: str) -> "BucketPlace":
        below = S3Store(self.bucket, f"{self.prefix}/{name}".strip("/"))
        below._recalled = self._recalled
        return below

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def address(self) -> str:
        """Its URL."""
        return str(self)

    def read(self, name: str) -> bytes | None:
        """See `Place.read`; what was recalled is given once."""
        recalled = self._recalled.pop(self._key(name), None)
        return super().read(name) if recalled is None else recalled

    def prefetch(self, name: str) -> None:
        """Read the object of this name in every folder below now, many at a time."""
        found = {self._key(key): data for key, data in self._read_all((name,))}
        self._recalled.update(found)

    def delete(self, *names: str) -> None:
        """Delete objects, whether they exist or not."""
        for name in names:
            self._call("delete_object", name)

    def lock(self, name: str, patience: float = 0.0) -> Lock:
        """See `Place.hold`; a holder that was killed is known to be dead when its lease is over."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lease = S3Lock(lambda method, **given: self._call(method, name, **given), self)
        return self._lease.taken(patience)

    def publish(self, pattern: str) -> None:
        """Put them there, and here away; curves, so that nothing is lost for good if that fails."""
        for file in self.path.glob(pattern):
            try:
                self._call("put_object", file.name, Body=file.read_bytes())
                file.unlink()
            except (OSError, UserError) as error:
                LOG.warning("%s/%s is not there: %s", self, file.name, error)

    def local_copy(self, names: Iterable[str]) -> Path:
        """A local copy of the objects below whose last name is one of `names` (globs)."""
        target = _own_folder("lmzoo-fetched-")
        for key, data in self._read_all(tuple(names)):
            (target / key).parent.mkdir(parents=True, exist_ok=True)
            (target / key).write_bytes(data)
        return target

    def keys(self) -> Iterator[str]:
        """The names of all objects below, relative to this place."""
        start, more = f"{self.prefix}/".lstrip("/"), {}
        while True:
            page = _asked("list_objects_v2", str(self), Bucket=self.bucket, Prefix=start, **more)
            for entry in page.get("Contents", ()):
                yield entry["Key"][len(start) :]
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _read_all(self, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        """The objects below whose last name is one of `names` (globs), read many at a time."""
        keys = retry(lambda: list(self.keys()), str(self))
        found = [key for key in keys if any(fnmatch(Path(key).name, name) for name in names)]
        with ThreadPoolExecutor(THREADS) as pool:
            for key, data in zip(found, pool.map(self.read, found), strict=True):
                if data is not None:
                    yield key, data

    def _read(self, name: str) -> bytes | None:
        answer = self._call("get_object", name)
        return None if answer is None else answer["Body"]

    def _write(self, name: str, data: bytes, keep: str) -> None:
        if self._lease:
            self._lease.check()
        self._recalled.pop(self._key(name), None)
        if keep:
            source = {"Bucket": self.bucket, "Key": self._key(name)}
            self._call("copy_object", keep, CopySource=source)
        self._call("put_object", name, Body=data)

    def _append(self, name: str, line: bytes) -> None:
        self._write(name, (self._read(name) or b"") + line, "")

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")

    def _call(self, method: str, name: str, **given: Any) -> Any:
        """boto3's answer; None if there is no such object."""
        where = f"{self}/{name}"
        return _asked(method, where, Bucket=self.bucket, Key=self._key(name), **given)


def _asked(method: str, where: str, **given: Any) -> Any:
    """S3's answer, its errors told apart: absent (None), away for a while, taken, or refused."""
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

    try:
        answer = getattr(_client(), method)(**given)
        return answer | {"Body": answer["Body"].read()} if "Body" in answer else answer
    except ClientError as error:
        code = error.response["Error"]["Code"]
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status == 404 and code != "NoSuchBucket":
            return None
        if status in (409, 412):
            raise FileExistsError(errno.EEXIST, code, where) from None
        if status >= 500 or status == 429:
            raise OSError(errno.EHOSTUNREACH, f"S3 answers {code}", where) from None
        raise UserError(f"{where}: S3 refuses {method}: {code}; see the bucket's rules") from None
    except (ConnectionError, HTTPClientError) as error:
        raise OSError(errno.EHOSTUNREACH, f"S3 does not answer ({error})", where) from None
    except BotoCoreError as error:
        raise UserError(f"{where}: {error}") from None


@cache
def _scratch(process: int) -> Path:
    """The scratch folder of this process; one that it was forked from has its own."""
    return _own_folder("lmzoo-scratch-")


def _own_folder(prefix: str) -> Path:
    """A new folder that no other account can look into, gone when this process ends."""
    folder, mine = Path(tempfile.mkdtemp(prefix=prefix)), os.getpid()

    def remove() -> None:
        if os.getpid() == mine:  # a forked process ends too, and this is not its own
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


@cache
def _client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise UserError("s3:// needs boto3; pip install 'lmzoo[cluster]'") from None
    settings = Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": 3},
        max_pool_connections=2 * THREADS,
    )
    return boto3.client("s3", config=settings)
