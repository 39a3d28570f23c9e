"""Losses of tens of thousands of real trainings, on which judges are tried."""

from pathlib import Path

import polars as pl

from lmzoo.base.errors import UserError


def crash_test() -> pl.DataFrame:
    """Return the trainings of docs/results/crash_test.md, one row each; it has the columns.

    A `UserError` says that only a checkout of the repository has the file.
    """
    file = Path(__file__).parents[3] / "docs/results/crash_test.parquet"
    if not file.is_file():
        raise UserError(f"no file {file}; only a checkout of the repository has it")
    return pl.read_parquet(file)
