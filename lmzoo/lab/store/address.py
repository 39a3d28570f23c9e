"""The address of a store: a folder, or `s3://bucket/prefix`. Standard library only."""

import re
from pathlib import Path

from lmzoo.base.errors import UserError
from lmzoo.lab.store.local import Store

S3_SCHEME = re.compile("s3:/+")
"""Start of the address of a bucket; `Path` removes one of its slashes."""


def open_store(address: Store | Path | str) -> Store:
    """Return the store at an address, a path or `s3://bucket/prefix`; a store is unchanged."""
    if isinstance(address, Store):
        return address
    text = str(address)
    scheme = S3_SCHEME.match(text)
    if scheme is None:
        return Store(Path(address))
    from lmzoo.lab.store.s3 import Bucket, S3Store  # a folder needs no client of S3

    bucket, _, prefix = text[scheme.end() :].partition("/")
    if not bucket:
        raise UserError(f"{text!r} has no bucket; write s3://bucket/prefix")
    return S3Store(Bucket(bucket), prefix.strip("/"))
