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
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polars import DataFrame, Float64, col, lit, when

from lmzoo.base.plain import Fields, Texts
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

Cell = Callable[[Fields, str], str]
"""Text of a row of a table, and its digits."""


NATS = "nats"


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a frame, and what a person reads of it."""

    name: str
    unit: str = ""
    heading: str = ""
    """In text tables; a column without one is in CSV and JSON only."""
    cell: str | Cell = ""
    """Format of the number, or function of the row and the table's digits, as "3f", "2e". A format
    names them `{digits}`. With `ends`, the cell is "mean ±half"."""
    tables: Texts = ()
    """The text tables that show the column."""
    ends: Texts = ()
    """Names of the low and the high end of its interval, columns of the same unit."""
    legend: str = ""
    """What it means; `{names}` are filled by the table."""
    place: int = 9
    """Order in text tables; columns of one place are in the order of the frame."""
    is_text: bool = False
    """Aligned left, and wrapped where space is short."""
    is_json: bool = False

    @property
    def names(self) -> Texts:
        """Its name, and those of its ends."""
        return (self.name,) + self.ends

    def text(self, row: Fields, digits: str) -> str:
        if callable(self.cell):
            return self.cell(row, digits)
        form = self.cell.format(digits=digits)
        value = row[self.name]
        if not self.ends:
            return format_number(value, form)
        low, high = self.ends
        return format_mean(value, row[low], row[high], form)


def names() -> list[str]:
    """Return the names of the columns of a ranking, in order."""
    # A column may have two lines, one for each of its text tables: `rank` has.
    return list(dict.fromkeys(name for column in FRAMES[RANKING] for name in column.names))


def add_values(table: DataFrame) -> DataFrame:
    """Add the columns that follow from others, and put all into the order of a ranking."""
    return table.with_columns(**VALUES).select(names())


def json_columns() -> frozenset[str]:
    """Return the columns of a ranking whose strings are JSON."""
    found = {column.name for column in FRAMES[RANKING] if column.is_json}
    return frozenset(found)


def shown_columns(table: str) -> list[Column]:
    """Return the columns of a text table of a ranking, in its order."""
    own = [column for column in FRAMES[RANKING] if table in column.tables]
    return sorted(own, key=lambda column: column.place)


def with_heading(columns: Iterable[Column], name: str, heading: str) -> list[Column]:
    """Return the columns, of which those of this name have another heading."""
    shown = []
    for column in columns:
        if column.name == name:
            column = replace(column, heading=heading)
        shown.append(column)
    return shown


def text_table(
    title: str, rows: Sequence[Fields], columns: Iterable[Column], digits: str = "3f"
) -> TextTable:
    """Return a table of strings; columns without any content are left out."""
    header = []
    cells = []
    of_text = set()
    for column in columns:
        own = [column.text(row, digits) for row in rows]
        if set(own) <= {MISSING, ""}:
            continue
        header.append(column.heading)
        cells.append(own)
        if column.is_text:
            of_text.add(column.heading)
    lines = list(zip(*cells, strict=True))
    return TextTable(title, tuple(header), lines, frozenset(of_text))


def legends(tables: Iterable[TextTable], columns: Iterable[Column], **words: str) -> Iterator[str]:
    """Yield "heading: legend" of the columns that the tables have."""
    shown = set()
    for table in tables:
        shown.update(table.header)
    for column in columns:
        if column.legend and column.heading in shown:
            yield f"{column.heading}: {column.legend.format(**words)}"


def in_unit(table: DataFrame, unit: str) -> DataFrame:
    """Return a ranking in another unit; a `UserError` if it needs an unknown size."""
    table = table.with_columns(metric=lit(unit))
    # Losses by token and by sentence are in nats already.
    if unit not in SIZE_OF:
        return table
    require_size(table, unit)
    own = []
    for column in FRAMES[RANKING]:
        if column.unit:
            own += column.names
    # By row: each text has a size of its own.
    return table.with_columns(col(own) * bits_per_nat(SIZE_OF[unit]))


def maximized(table: DataFrame, frame: str) -> DataFrame:
    """Return the statistics of losses as those of a metric of which the highest is the best."""
    # A sign has no unit, and turns with the difference.
    sources = {"sign": "sign"}
    for column in FRAMES[frame]:
        if column.unit != NATS:
            continue
        sources[column.name] = column.name
        if column.ends:
            low, high = column.ends
            # Minus makes the low end the high one.
            sources |= {low: high, high: low}
    turned = []
    for name, source in sources.items():
        if source in table.columns:
            minus = -col(source)
            # A metric of 0 would be shown as -0.0.
            turned.append(minus.replace(-0.0, 0.0).alias(name))
    return table.with_columns(turned, higher_is_better=True)


def _rank(row: Fields, _: str) -> str:
    rank = row["rank"]
    low = row["rank_low"]
    high = row["rank_high"]
    if rank is None:
        return MISSING
    if low is None:
        return f"{rank} ({MISSING})"
    if low == high:
        return f"{rank} ({low})"
    return f"{rank} ({low}–{high})"


def _chances(row: Fields, _: str) -> str:
    names = ("probability_worse", "probability_within", "probability_better")
    shares = [row[name] for name in names]
    if row["reference"] or None in shares:
        return MISSING
    percent = [f"{100 * share:.0f}" for share in shares]
    return f"{'/'.join(percent)} %"


def _diverged(row: Fields, _: str) -> str:
    if not row["confirm_diverged"]:
        return ""
    share = f"{row['confirm_diverged']}/{row['confirm']}"
    p = row["p_diverged"]
    # On a task, this p is that of the seeds that solve it.
    if p is None or row.get("solved") is not None:
        return share
    return f"{share}, p {format_p(p)}"


def _with_aliases(row: Fields, _: str) -> str:
    if row["aliases"]:
        return f"{row['label']} ≡"
    return row["label"]


def _difference(row: Fields, digits: str) -> str:
    if row.get("reference"):
        return "reference"
    low = row["difference_low"]
    high = row["difference_high"]
    return format_mean(row["difference"], low, high, form=f"+.{digits}")


def _accuracy(row: Fields, _: str) -> str:
    """Return "mean (worst–best)" in percent; one number if all seeds agree to the digits shown."""
    if row["accuracy"] is None:
        return MISSING
    names = ("accuracy", "accuracy_low", "accuracy_high")
    mean, low, high = (f"{100 * row[name]:.1f}" for name in names)
    if low == high:
        return f"{mean} %"
    return f"{mean} % ({low}–{high})"


def _solved(row: Fields, _: str) -> str:
    if row["solved"] is None:
        return ""
    return f"{row['solved']}/{row['confirm'] - row['missing']}"


def _perplexity(row: Fields, _: str) -> str:
    value = row["perplexity"]
    if value is not None and value < 1000:
        return format_number(value, ",.2f")
    return format_number(value, ",.0f")


def _marks(row: Fields, _: str) -> str:
    # The legend of this mark promises a number.
    missing = f"missing {row['missing']}/{row['confirm']}"
    return ", ".join(row["marks"]).replace("missing", missing)


def _seeds(row: Fields, _: str) -> str:
    if row["runs"] == row["confirm"]:
        return str(row["confirm"])
    return f"{row['runs']} of {row['confirm']}"


def _setting(row: Fields, _: str) -> str:
    if not row["setting"]:
        return MISSING
    parts = []
    setting = json.loads(row["setting"])
    for name, value in setting.items():
        part = f"{name}={format_value(value)}"
        if name in row["edge"]:
            part += " (edge)"
        parts.append(part)
    return ", ".join(parts) or MISSING


def _verdict(row: Fields, _: str) -> str:
    confirmed = row["confirmed"]
    return shown_verdict(row["verdict"], confirmed=confirmed)


def _with_seeds(row: Fields, _: str) -> str:
    return verdict_text(row)


def _judged(cell: Cell, otherwise: str = "") -> Cell:
    """Return a cell that only variants which are compared have."""

    def text(row: Fields, digits: str) -> str:
        if row["against"]:
            return cell(row, digits)
        return otherwise

    return text


def _p(row: Fields, _: str) -> str:
    return format_p(row["p"])


CELLS: dict[str, Cell] = {
    "rank": _rank,
    "label": lambda row, _: row["label"],
    "label ≡": _with_aliases,
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
    "variant": lambda row, _: row["variant"],
    "against": lambda row, _: row["against"] or "",
    "judged verdict": _judged(_with_seeds, "reference"),
    "judged difference": _judged(_difference),
    "judged p": _judged(_p),
    "count": lambda row, _: str(row["diverged"] or ""),
}
"""Name of a cell in `columns.csv` -> its function; other cells are formats."""
PERPLEXITY = col("loss").exp()
# A training objective and a reconstruction are no probabilities of the text.
HAS_PERPLEXITY = col("score").is_in(["exact", "bound", "conditional"])
# A loss by sentence has no perplexity per token, and an overflow is none.
HAS_PERPLEXITY &= (col("metric") == "token") & PERPLEXITY.is_finite()
AFTER_TRAINING_ENDS = ("after_training_low", "after_training_high")
"""Null until a ranking is asked for them (`after_training.py`)."""
VALUES = {
    "perplexity": when(HAS_PERPLEXITY).then(PERPLEXITY),
    "gap": col("loss") - col("floor"),
    "after_training": lit(None, Float64),
    "after_training_low": lit(None, Float64),
    "after_training_high": lit(None, Float64),
}
"""Column -> its value, if it follows from others of a ranking."""


def _read_columns() -> dict[str, list[Column]]:
    """Return frame -> its columns, from the lines of `columns.csv`."""
    text = Path(__file__).with_name("columns.csv").read_text("utf-8")
    # The blanks align the file for its reader.
    lines = re.sub(r" *(\||$) *", r"\1", text, flags=re.MULTILINE).splitlines()
    frames = {}
    for own in csv.DictReader(lines, delimiter="|"):
        column = Column(
            own["name"],
            own["unit"],
            own["heading"],
            CELLS.get(own["cell"], own["cell"]),
            tables=tuple(own["tables"].split()),
            ends=tuple(own["ends"].split()),
            legend=own["legend"],
            place=int(own["place"] or 9),
            is_text="text" in own["kind"],
            is_json="json" in own["kind"],
        )
        frames.setdefault(own["frame"], []).append(column)
    return frames


RANKING = "ranking"
FRAMES = _read_columns()
"""Frame of a command -> its columns, in order; intervals are null for a single seed. `ranking` has
the points of a study, `judged` the variants of any program, whose `mean` is shown by its name
there."""
