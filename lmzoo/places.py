"""What a store's address means: a folder's path, or `s3://bucket/prefix`."""

import re
from pathlib import Path

from lmzoo.bucket import BucketPlace
from lmzoo.place import Place

BUCKET = re.compile("s3:/+")
"""How the address of a bucket begins, also after `Path` has taken a slash from it."""


def place(where: Place | Path | str) -> Place:
    """The place that is meant."""
    if isinstance(where, Place):
        return where
    text = str(where)
    if BUCKET.match(text):
        return BucketPlace.at(BUCKET.sub("", text, count=1))
    return Place(Path(where))
