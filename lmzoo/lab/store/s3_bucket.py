"""The objects of one S3 bucket, through boto3.

boto3 finds credentials, region and endpoint in the environment, in a profile or in the role of the
machine, and follows S3 to the region of the bucket. obstore is faster (0.5 ms of CPU per request
instead of 2 ms), but fails if the region is not configured, hangs in forked processes, reports
error codes only as text and does not return the time of S3, which the lock needs.

Errors are those of a file system: FileNotFoundError (no such object), FileExistsError (the
condition of a put does not hold), OSError with EHOSTUNREACH (S3 is away or overloaded, so the
request is worth a retry), and UserError (no permission, no such bucket, no credentials).
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from lmzoo.base.errors import UserError

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

    def __init__(self, name: str) -> None:
        if find_spec("boto3") is None:
            raise UserError("s3:// needs boto3; run `pip install boto3`")
        self.name = name

    def get(self, key: str) -> StoredObject:
        """Read an object."""
        with _translate_errors(f"s3://{self.name}/{key}"):
            response = _client().get_object(Bucket=self.name, Key=key)
            now = parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
            age = (now - response["LastModified"]).total_seconds()
            return StoredObject(response["Body"].read(), response["ETag"], age)

    def put(self, key: str, data: bytes, **condition: str) -> str:
        """Write an object, under `IfMatch` or `IfNoneMatch` if given, and return its ETag."""
        with _translate_errors(f"s3://{self.name}/{key}"):
            return _client().put_object(Bucket=self.name, Key=key, Body=data, **condition)["ETag"]

    def delete(self, key: str) -> None:
        """Delete an object, whether it exists or not."""
        with suppress(FileNotFoundError), _translate_errors(f"s3://{self.name}/{key}"):
            _client().delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that start with `prefix`."""
        with _translate_errors(f"s3://{self.name}/{prefix}"):
            pages = _client().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=prefix):
                yield from (entry["Key"] for entry in page.get("Contents", ()))


@contextmanager
def _translate_errors(target: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status == 404 and code != "NoSuchBucket":
            raise FileNotFoundError(errno.ENOENT, code, target) from None
        if status in (409, 412):
            raise FileExistsError(errno.EEXIST, code, target) from None
        if status >= 500 or status == 429:
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
    import boto3
    from botocore.config import Config

    settings = Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": 3},
        max_pool_connections=CONNECTIONS,
    )
    return boto3.client("s3", config=settings)
