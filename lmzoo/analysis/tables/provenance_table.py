"""The second table of a ranking: how the setting of each point was found.

A column with the same cell in every row is a part of the title.
"""

from dataclasses import replace

import polars as pl

from lmzoo.analysis.tables.columns import shown_columns, text_table
from lmzoo.analysis.text.render import TextTable

TITLE = "how each setting was found"
FEWEST = 3
"""Rows of a table whose equal columns become a part of the title."""
KEPT = ("rank", "point", "parameters")


def provenance_table(part: pl.DataFrame) -> TextTable:
    """Return the parameters, the runs and the chosen setting of each point of one table."""
    table = text_table(TITLE, part.to_dicts(), shown_columns("ranking", "provenance"))
    equal = {}
    for name, *own in zip(table.header, *table.rows, strict=True):
        if name not in KEPT and set(own) <= {"0"}:
            table = table.without(name)
        elif name not in KEPT and len(own) >= FEWEST and len(set(own)) == 1:
            table, equal[name] = table.without(name), own[0]
    shared = ", ".join(f"{name} {cell}" for name, cell in equal.items())
    return replace(table, title=f"{TITLE}; at every point: {shared}") if equal else table
