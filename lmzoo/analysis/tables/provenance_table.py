"""The second table of a ranking: how the setting of each point was found.

A column with the same cell in every row is a part of the title.
"""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from lmzoo.analysis.text.formatting import MISSING, format_number, format_value
from lmzoo.analysis.text.render import TextTable

TITLE = "how each setting was found"
FEWEST = 3
"""Rows of a table whose equal columns become a part of the title."""
TEXT_COLUMNS = frozenset({"point", "setting chosen"})
KEPT = ("rank", "point", "parameters")


def provenance_table(part: pl.DataFrame) -> TextTable:
    """Return the parameters, the runs and the chosen setting of each point of one table."""
    rows = part.to_dicts()
    columns = {
        "rank": [format_number(row["rank"], "d") for row in rows],
        "point": [row["label"] for row in rows],
        "parameters": [format_number(row["parameters"], ",d") for row in rows],
        "seeds": [_of(row["runs"], row["confirm"]) for row in rows],
        "tuned": [str(row["tune"]) for row in rows],
        "pruned": [str(row["pruned"]) for row in rows],
        "diverged": [str(row["diverged"]) for row in rows],
        "failed": [str(row["failed"]) for row in rows],
        "setting chosen": [_setting(row) for row in rows],
    }
    columns = {name: cells for name, cells in columns.items() if not set(cells) <= {MISSING, "0"}}
    equal = {
        name: cells[0]
        for name, cells in columns.items()
        if name not in KEPT and len(cells) >= FEWEST and len(set(cells)) == 1
    }
    shared = ", ".join(f"{name} {cell}" for name, cell in equal.items())
    header = tuple(name for name in columns if name not in equal)
    return TextTable(
        f"{TITLE}; at every point: {shared}" if equal else TITLE,
        header,
        list(zip(*(columns[name] for name in header), strict=True)),
        TEXT_COLUMNS,
        ("tuned", "pruned"),
    )


def _of(part: int, whole: int) -> str:
    return str(whole) if part == whole else f"{part} of {whole}"


def _setting(row: Mapping[str, Any]) -> str:
    setting = json.loads(row["setting"]) if row["setting"] else {}
    parts = [
        f"{name}={format_value(value)}{' (edge)' * (name in row['edge'])}"
        for name, value in setting.items()
    ]
    return ", ".join(parts) or MISSING
