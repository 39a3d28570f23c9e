"""Where a command leaves its files: in the study's folder, unless it is told where else.

A study in a bucket has no folder here, so there the command must be told.
"""

from pathlib import Path

from lmzoo.errors import UserError
from lmzoo.store.open import BUCKET


def output(study: Path, out: Path | None, name: str) -> Path:
    """Where to write: `out`, or `name` in the study's folder.

    Raises:
        UserError: that is in a bucket.
    """
    place = out or study / name
    if BUCKET.match(str(place)):
        raise UserError(
            f"{address(place)} is in a bucket, pages and pictures are written to folders only; "
            "say with --out which"
        )
    return place


def address(path: Path) -> str:
    """The path as one types it: `Path` takes a slash from a bucket's URL."""
    return BUCKET.sub("s3://", str(path), count=1)
