"""Tables of cases: `[[name]]` of a TOML file, one test each."""

import tomllib
from pathlib import Path

import pytest


def cases(file: Path, name: str) -> pytest.MarkDecorator:
    """Return the mark that runs a test with each `case` of a table."""
    rows = tomllib.loads(file.read_text())[name]
    return pytest.mark.parametrize("case", rows, ids=range(len(rows)))
