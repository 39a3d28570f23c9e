"""The columns of all tables, each described once.

`columns.csv` has a line for each column: its frame, its name there (CSV, JSON), a unit, and, if a
person reads it, a heading, a cell (a format or a name of `CELLS`), the text tables that show it,
its interval, its place and a legend, in which `{names}`
are filled by the table. Units, text tables, legends and the report follow. A new column of the
ranking is one line there, and one of `VALUES` if it follows from others; `make results` writes it
into the pages of results.

A column that does not follow from others is computed where its frame is (`ranking.py`, ...).

The unit `nats` is converted to bits, and turned if the highest value is the best; `size`, that of
the margin, is converted only.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import polars as pl

from lmzoo.lab.analysis.formatting import (
    MISSING,
    SIZE_OF,
    bits_per_nat,
    format_mean,
    format_number,
    format_p,
    format_value,
    require_size,
)
from lmzoo.lab.analysis.render import TextTable
from lmzoo.lab.analysis.verdict_lines import shown_verdict, verdict_text

Row = Mapping[str, Any]
"""A row of a frame."""


NATS = "nats"


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a frame, and what a person reads of it."""

    name: str
    unit: str = ""
    heading: str = ""
    """In text tables; a column without one is in CSV and JSON only."""
    cell: str | Callable[[Row, str], str] = ""
    """Format of the number, or function of the row and the table's digits, as "3f", "2e". A format
    names them `{digits}`. With `ends`, the cell is "mean ±half"."""
    tables: tuple[str, ...] = ()
    """The text tables that show the column."""
    ends: tuple[str, ...] = ()
    """Names of the low and the high end of its interval, columns of the same unit."""
    legend: str = ""
    """What it means; `{names}` are filled by the table."""
    value: pl.Expr | None = None
    """The column, if it follows from others of a ranking."""
    place: int = 9
    """Order in text tables; columns of one place are in the order of the frame."""
    is_text: bool = False
    """Aligned left, and wrapped where space is short."""
    is_json: bool = False

    def text(self, row: Row, digits: str) -> str:
        if callable(self.cell):
            return self.cell(row, digits)
        form, value = self.cell.format(digits=digits), row[self.name]
        if self.ends:
            return format_mean(value, *(row[end] for end in self.ends), form=form)
        return format_number(value, form)


def names() -> list[str]:
    """Return the names of the columns of a ranking, in order."""
    own = (name for column in FRAMES[RANKING] for name in _own_names(column))
    return list(dict.fromkeys(own))


def add_values(table: pl.DataFrame) -> pl.DataFrame:
    """Add the columns that follow from others, and put all into the order of a ranking."""
    values = (c.value.alias(c.name) for c in FRAMES[RANKING] if c.value is not None)
    return table.with_columns(values).select(names())


def json_columns() -> frozenset[str]:
    """Return the columns of a ranking whose strings are JSON."""
    return frozenset(column.name for column in FRAMES[RANKING] if column.is_json)


def shown_columns(table: str) -> list[Column]:
    """Return the columns of a text table of a ranking, in its order."""
    own = (column for column in FRAMES[RANKING] if table in column.tables)
    return sorted(own, key=lambda column: column.place)


def text_table(
    title: str, rows: Sequence[Row], columns: Iterable[Column], digits: str = "3f"
) -> TextTable:
    """Return a table of strings; columns without any content are left out."""
    cells = {column: [column.text(row, digits) for row in rows] for column in columns}
    kept = [column for column, own in cells.items() if not set(own) <= {MISSING, ""}]
    return TextTable(
        title,
        tuple(column.heading for column in kept),
        list(zip(*(cells[column] for column in kept), strict=True)),
        frozenset(column.heading for column in kept if column.is_text),
    )


def legends(tables: Iterable[TextTable], columns: Iterable[Column], **words: str) -> Iterator[str]:
    """Yield "heading: legend" of the columns that the tables have."""
    shown = {heading for table in tables for heading in table.header}
    for column in columns:
        if column.legend and column.heading in shown:
            yield f"{column.heading}: {column.legend.format(**words)}"


def in_unit(table: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Return a ranking in another unit; a `UserError` if it needs an unknown size."""
    table = table.with_columns(metric=pl.lit(unit))
    if unit not in SIZE_OF:
        return table
    require_size(table, unit)
    own = [name for column in FRAMES[RANKING] if column.unit for name in _own_names(column)]
    return table.with_columns(pl.col(own) * bits_per_nat(SIZE_OF[unit]))


def maximized(table: pl.DataFrame, frame: str) -> pl.DataFrame:
    """Return the statistics of losses as those of a metric of which the highest is the best."""
    own = (c for c in FRAMES[frame] if c.unit == NATS)
    names = {name: name for column in own for name in _own_names(column)}
    names["sign"] = "sign"
    for column in FRAMES[frame]:
        if column.unit and len(column.ends) == 2:
            low, high = column.ends
            names |= {low: high, high: low}
    turned = (
        (-pl.col(old)).replace(-0.0, 0.0).alias(new)
        for new, old in names.items()
        if old in table.columns
    )
    return table.with_columns(turned).with_columns(higher_is_better=True)


def _own_names(column: Column) -> tuple[str, ...]:
    return column.name, *column.ends


def _rank(row: Row, digits: str) -> str:
    return MISSING if row["rank"] is None else f"{row['rank']} ({_ranks(row, digits)})"


def _ranks(row: Row, _: str) -> str:
    low, high = row["rank_low"], row["rank_high"]
    return MISSING if low is None else str(low) if low == high else f"{low}–{high}"


def _chances(row: Row, _: str) -> str:
    own = [row[f"probability_{side}"] for side in ("worse", "within", "better")]
    if row["reference"] or None in own:
        return MISSING
    return "/".join(f"{100 * share:.0f}" for share in own) + " %"


def _diverged(row: Row, _: str) -> str:
    if not row["confirm_diverged"]:
        return ""
    is_known = row["p_diverged"] is not None and row.get("solved") is None
    share = f"{row['confirm_diverged']}/{row['confirm']}"
    if is_known:
        return f"{share}, p {format_p(row['p_diverged'])}"
    return share


def _difference(row: Row, digits: str) -> str:
    if row.get("reference"):
        return "reference"
    ends = (row[name] for name in DIFFERENCE_ENDS)
    return format_mean(row["difference"], *ends, form=f"+.{digits}")


def _accuracy(row: Row, _: str) -> str:
    """Return "mean (worst–best)" in percent; one number if all seeds agree to the digits shown."""
    if row["accuracy"] is None:
        return MISSING
    mean, low, high = (
        f"{100 * row[name]:.1f}" for name in ("accuracy", "accuracy_low", "accuracy_high")
    )
    return f"{mean} %" if low == high else f"{mean} % ({low}–{high})"


def _solved(row: Row, _: str) -> str:
    if row["solved"] is None:
        return ""
    return f"{row['solved']}/{row['confirm'] - row['missing']}"


def _perplexity(row: Row, _: str) -> str:
    value = row["perplexity"]
    form = ",.2f" if value is not None and value < 1000 else ",.0f"
    return format_number(value, form)


def _marks(row: Row, _: str) -> str:
    return ", ".join(
        f"{mark} {row['missing']}/{row['confirm']}" if mark == "missing" else mark
        for mark in row["marks"]
    )


def _seeds(row: Row, _: str) -> str:
    part, whole = row["runs"], row["confirm"]
    return str(whole) if part == whole else f"{part} of {whole}"


def _setting(row: Row, _: str) -> str:
    setting = json.loads(row["setting"]) if row["setting"] else {}
    parts = [
        f"{name}={format_value(value)}{' (edge)' * (name in row['edge'])}"
        for name, value in setting.items()
    ]
    return ", ".join(parts) or MISSING


def _verdict(row: Row, _: str) -> str:
    return shown_verdict(row["verdict"], confirmed=row["confirmed"])


def _with_seeds(row: Row, _: str) -> str:
    return verdict_text(row)


def _judged(cell: Callable[[Row, str], str], otherwise: str = "") -> Callable[[Row, str], str]:
    """Return a cell that only variants which are compared have."""

    def text(row: Row, digits: str) -> str:
        if row["against"]:
            return cell(row, digits)
        return otherwise

    return text


def _p(row: Row, _: str) -> str:
    return format_p(row["p"])


CELLS: dict[str, Callable[[Row, str], str]] = {
    "rank": _rank,
    "label": lambda row, _: row["label"],
    "label ≡": lambda row, _: row["label"] + " ≡" * bool(row["aliases"]),
    "difference": _difference,
    "p": _p,
    "verdict": _verdict,
    "verdict, seeds": _with_seeds,
    "chances": _chances,
    "diverged": _diverged,
    "accuracy": _accuracy,
    "solved": _solved,
    "perplexity": _perplexity,
    "marks": _marks,
    "seeds": _seeds,
    "setting": _setting,
    "table": lambda row, _: row["table"],
    "variant": lambda row, _: row["variant"],
    "against": lambda row, _: row["against"] or "",
    "judged verdict": _judged(_with_seeds, "reference"),
    "judged difference": _judged(_difference),
    "judged p": _judged(_p),
    "count": lambda row, _: str(row["diverged"] or ""),
}
"""Name of a cell in `columns.csv` -> its function; other cells are formats."""
PERPLEXITY = pl.col("loss").exp()
HAS_PERPLEXITY = pl.col("score").is_in(["exact", "bound", "conditional"])
HAS_PERPLEXITY &= (pl.col("metric") == "token") & PERPLEXITY.is_finite()
AFTER_TRAINING_ENDS = ("after_training_low", "after_training_high")
"""Null until a ranking is asked for them (`after_training.py`)."""
VALUES = {
    "perplexity": pl.when(HAS_PERPLEXITY).then(PERPLEXITY),
    "gap": pl.col("loss") - pl.col("floor"),
    **dict.fromkeys(("after_training", *AFTER_TRAINING_ENDS), pl.lit(None, pl.Float64)),
}
"""Column -> its value, if it follows from others of a ranking."""
DIFFERENCE_ENDS = ("difference_low", "difference_high")


def _read_columns() -> dict[str, tuple[Column, ...]]:
    """Return frame -> its columns, from the lines of `columns.csv`."""
    text = files("lmzoo.lab.analysis").joinpath("columns.csv").read_text("utf-8")
    lines = csv.reader(text.splitlines(), delimiter="|")
    header, *rows = [[cell.strip() for cell in line] for line in lines]
    frames: dict[str, list[Column]] = {}
    for row in rows:
        own = dict(zip(header, row, strict=True))
        column = Column(
            own["name"],
            own["unit"],
            own["heading"],
            CELLS.get(own["cell"], own["cell"]),
            tables=tuple(own["tables"].split()),
            ends=tuple(own["ends"].split()),
            legend=own["legend"],
            value=VALUES.get(own["name"]),
            place=int(own["place"] or 9),
            is_text="text" in own["kind"],
            is_json="json" in own["kind"],
        )
        frames.setdefault(own["frame"], []).append(column)
    return {frame: tuple(columns) for frame, columns in frames.items()}


RANKING = "ranking"
FRAMES = _read_columns()
"""Frame of a command -> its columns, in order; intervals are null for a single seed. `ranking` has
the points of a study, `judged` the variants of any program, whose `mean` is shown by its name
there."""
