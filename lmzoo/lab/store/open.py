"""Opens a store by its address: the path of a folder, or `s3://bucket/prefix`."""

import re
from pathlib import Path

from lmzoo.base.errors import UserError
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.s3 import Bucket, S3Store

S3_SCHEME = re.compile("s3:/+")
"""Start of the address of a bucket; `Path` removes one of its slashes."""


def open_store(address: Store | Path | str) -> Store:
    """Return the store at an address; a store is returned unchanged.

    Raises:
        UserError: The address has no bucket.
    """
    if isinstance(address, Store):
        return address
    text = str(address)
    scheme = S3_SCHEME.match(text)
    if scheme is None:
        return Store(Path(address))
    bucket, _, prefix = text[scheme.end() :].partition("/")
    if not bucket:
        raise UserError(f"{text!r} has no bucket; write s3://bucket/prefix")
    return S3Store(Bucket(bucket), prefix.strip("/"))
