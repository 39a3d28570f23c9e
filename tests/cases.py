"""Tables of cases in TOML files: one test for each row of a table."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
parametrize = pytest.mark.parametrize


def rows(file: str, table: str) -> list[Any]:
    """Return the rows of a table of a file below `tests`."""
    return tomllib.loads((HERE / file).read_text("utf-8"))[table]


def cases(file: str, table: str, columns: str = "case") -> pytest.MarkDecorator:
    """Return the mark that runs a test with each row of a table; a row may have columns."""
    found = rows(file, table)
    return parametrize(columns, found, ids=range(len(found)))
