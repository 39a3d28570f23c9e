"""What a store's address means: a folder's path, or `s3://bucket/prefix`."""

import re
from pathlib import Path

from lmzoo.store.local import Store
from lmzoo.store.s3 import S3Store

BUCKET = re.compile("s3:/+")
"""How the address of a bucket begins, also after `Path` has taken a slash from it."""


def open_store(where: Store | Path | str) -> Store:
    """The place that is meant."""
    if isinstance(where, Store):
        return where
    text = str(where)
    if BUCKET.match(text):
        return S3Store.at(BUCKET.sub("", text, count=1))
    return Store(Path(where))
