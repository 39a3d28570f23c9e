"""The default place of a command's files: the study's folder."""

from pathlib import Path

from lmzoo.analysis.study_parquet import SUFFIX
from lmzoo.errors import UserError
from lmzoo.store.open import S3_SCHEME


def output_path(study: Path, out: Path | None, name: str) -> Path:
    """Return `out` if it is given, else `name` in the study's folder.

    For a study in a Parquet file, the default is beside the file.

    Raises:
        UserError: The path is in a bucket; pages and charts are written to local folders only.
    """
    folder = study.parent if study.suffix == SUFFIX else study
    path = out or folder / name
    if S3_SCHEME.match(str(path)):
        raise UserError(
            f"{store_address(path)} is in a bucket, but pages and charts are written to local "
            "folders only; give one with --out"
        )
    return path


def store_address(path: Path) -> str:
    """Return the address of a store as the user types it; `Path` removes a slash of s3://."""
    return S3_SCHEME.sub("s3://", str(path), count=1)
