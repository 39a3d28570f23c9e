"""The columns of all tables, each described once.

A column has a name in the frame (CSV, JSON), a unit, and, if a person reads it, a heading, a cell
and a legend. Units, text tables, legends and the report follow from `FRAMES`. A new column of the
ranking is one entry here, and `make results` writes it into the pages of results:

    Column("half", NEAR_LOSS, "half", ".3f", ("results",), value=pl.col("high") - pl.col("loss"),
           legend="half of the loss's interval")

A column that does not follow from others is computed where its frame is (`ranking.py`, ...).

In another unit, a number x in nats per token becomes

    bits          k x                                   k: bits per character or byte of one nat
    perplexities  exp(k x)                              of a loss; k = 1, or tokens per word
                  exp(k (o + x)) − exp(k o)             of a distance x from the loss o
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from lmzoo.lab.analysis.formatting import (
    MISSING,
    OBJECTIVE,
    PERPLEXITIES,
    SIZE_COLUMNS,
    SIZE_OF,
    bits_per_nat,
    format_mean,
    format_number,
    format_p,
    format_probability,
    format_value,
    require_size,
)
from lmzoo.lab.analysis.render import TextTable
from lmzoo.lab.analysis.verdict_lines import shown_verdict, verdict_text

Row = Mapping[str, Any]
"""A row of a frame."""


@dataclass(frozen=True, eq=False)
class Nats:
    """The unit of a number that other units convert: nats per token."""

    origin: pl.Expr | None = None
    """The loss from which a distance is measured; None for a loss."""
    as_perplexity: bool = True
    """False: the number stays in nats in a table of perplexities."""


LOSS = Nats()
FROM_REFERENCE = Nats(pl.col("loss") - pl.col("difference"))
FROM_FLOOR = Nats(pl.col("loss") - pl.col("gap"))
FROM_FIVE_GRAM = Nats(pl.col("loss") - pl.col("kn5_difference"))
NEAR_LOSS = Nats(pl.col("loss"))
"""A distance from the row's own loss, such as a standard deviation."""
LINEAR = Nats(as_perplexity=False)
"""Not converted to perplexities: the margin."""


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a frame, and what a person reads of it."""

    name: str
    unit: Nats | None = None
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
    optional: int = 0
    """A narrow terminal leaves the column out; those with small numbers first. 0: never."""

    def text(self, row: Row, digits: str) -> str:
        if callable(self.cell):
            return self.cell(row, digits)
        form, value = self.cell.format(digits=digits), row[self.name]
        if self.ends:
            return format_mean(value, *(row[end] for end in self.ends), form=form)
        return format_number(value, form)


def names(frame: str) -> list[str]:
    """Return the names of a frame's columns, in order."""
    return list(dict.fromkeys(name for column in FRAMES[frame] for name in _own_names(column)))


def add_values(table: pl.DataFrame, frame: str) -> pl.DataFrame:
    """Add the columns that follow from others, and put all into the order of the frame."""
    values = (c.value.alias(c.name) for c in FRAMES[frame] if c.value is not None)
    return table.with_columns(values).select(names(frame))


def json_columns(frame: str) -> frozenset[str]:
    """Return the columns whose strings are JSON."""
    return frozenset(column.name for column in FRAMES[frame] if column.is_json)


def shown_columns(frame: str, table: str) -> list[Column]:
    """Return the columns of a text table, in its order."""
    own = (column for column in FRAMES[frame] if table in column.tables)
    return sorted(own, key=lambda column: column.place)


def text_table(
    title: str, rows: Sequence[Row], columns: Iterable[Column], digits: str = "3f"
) -> TextTable:
    """Return a table of strings; columns without any content are left out."""
    cells = {column: [column.text(row, digits) for row in rows] for column in columns}
    kept = [column for column, own in cells.items() if not set(own) <= {MISSING, ""}]
    optional = sorted((c for c in kept if c.optional), key=lambda column: column.optional)
    return TextTable(
        title,
        tuple(column.heading for column in kept),
        list(zip(*(cells[column] for column in kept), strict=True)),
        frozenset(column.heading for column in kept if column.is_text),
        tuple(column.heading for column in optional),
    )


def legends(tables: Iterable[TextTable], columns: Iterable[Column], **words: str) -> Iterator[str]:
    """Yield "heading: legend" of the columns that the tables have."""
    shown = {heading for table in tables for heading in table.header}
    for column in columns:
        if column.legend and column.heading in shown:
            yield f"{column.heading}: {column.legend.format(**words)}"


def in_unit(table: pl.DataFrame, frame: str, unit: str) -> pl.DataFrame:
    """Return a table of token losses in another unit; a `UserError` if it needs an unknown size."""
    table = table.with_columns(metric=pl.lit(unit))
    if unit in SIZE_OF:
        require_size(table, unit)
        own = [name for name, _ in _in_nats(frame, unit) if name in table.columns]
        size = SIZE_OF[unit]
        factor = 1 / pl.col(size) if unit == "wppl" else bits_per_nat(size)
        table = table.with_columns(pl.col(own) * factor)
    return _perplexities(table, frame) if unit in PERPLEXITIES else table


def maximized(table: pl.DataFrame, frame: str) -> pl.DataFrame:
    """Return the statistics of losses as those of a metric of which the highest is the best."""
    own = (c for c in FRAMES[frame] if c.unit and c.unit.as_perplexity)
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


def _perplexities(table: pl.DataFrame, frame: str) -> pl.DataFrame:
    is_text = pl.col("score") != OBJECTIVE
    converted = {
        name: pl.col(name).exp() if zero is None else (zero + pl.col(name)).exp() - zero.exp()
        for name, zero in _in_nats(frame, PERPLEXITIES[0])
        if name in table.columns
    }
    return table.with_columns(pl.when(is_text).then(x).alias(name) for name, x in converted.items())


def _in_nats(frame: str, unit: str) -> Iterator[tuple[str, pl.Expr | None]]:
    """Yield the numbers that a unit converts, each with the loss it is measured from."""
    for column in FRAMES[frame]:
        if column.unit and (column.unit.as_perplexity or unit not in PERPLEXITIES):
            yield from ((name, column.unit.origin) for name in _own_names(column))


def _own_names(column: Column) -> tuple[str, ...]:
    return column.name, *column.ends


def _plain(*own: str) -> tuple[Column, ...]:
    return tuple(map(Column, own))


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
    p = "" if row["p_diverged"] is None else f", p {format_p(row['p_diverged'])}"
    return f"{row['confirm_diverged']}/{row['confirm']}{p}"


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


def _perplexity(row: Row, _: str) -> str:
    value = row["perplexity"]
    form = ",.2f" if value is not None and value < 1000 else ",.0f"
    return "" if row["metric"] in PERPLEXITIES else format_number(value, form)


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


RESULTS, PROVENANCE, BRIEF = ("results",), ("provenance",), ("brief",)
PERPLEXITY = pl.col("loss").exp()
HAS_PERPLEXITY = pl.col("score").is_in(["exact", "bound", "conditional"])
HAS_PERPLEXITY &= (pl.col("metric") == "token") & PERPLEXITY.is_finite()
DIFFERENCE_ENDS = ("difference_low", "difference_high")
AFTER_TRAINING_ENDS = ("after_training_low", "after_training_high")
"""Null until a ranking is asked for them (`after_training.py`)."""

POINT = Column("label", None, "point", lambda row, _: row["label"], place=2, is_text=True)
ACCURACY = Column(
    "accuracy", None, "accuracy", _accuracy, ("results", "compared", *BRIEF),
    ends=("accuracy_low", "accuracy_high"), place=5,
)  # fmt: skip
BETTER = Column(
    "better", None, "P(better)", lambda row, _: format_probability(row["better"]),
    ("compared",), place=8, optional=1,
    legend="probability that the mean loss is below the reference's, not corrected for the number "
    "of points",
)  # fmt: skip

RANKING = (
    *_plain("score"), Column("corpus", is_json=True), *_plain("fingerprint", "vocab", "length"),
    *_plain("split", "epoch", "metric"),
    Column("rank", None, "rank", _rank, RESULTS, ends=("rank_low", "rank_high"), place=1),
    Column("rank", None, "rank", "d", PROVENANCE, place=1),
    *_plain("point"),
    replace(POINT, cell=lambda row, _: row["label"] + " ≡" * bool(row["aliases"]),
            tables=(*RESULTS, *BRIEF)),
    replace(POINT, tables=PROVENANCE),
    *_plain("aliases", "reference", "is_baseline"),
    Column("loss", LOSS, "loss", ".{digits}", RESULTS, ends=("low", "high"), place=4),
    Column("loss", LOSS, "loss", ".{digits}", BRIEF, place=4),
    Column(
        "difference", FROM_REFERENCE, "difference", _difference, (*RESULTS, *BRIEF),
        ends=DIFFERENCE_ENDS,
        legend="to {reference}, of the means; its interval covers the seeds and the choice of the "
        "setting; where the test is stricter, an end is moved to 0 or to the margin", place=6,
    ),
    Column(
        "after_training", FROM_REFERENCE, "cut after training", "+.{digits}", (*RESULTS, *BRIEF),
        ends=AFTER_TRAINING_ENDS, value=pl.lit(None, pl.Float64), place=6,
        legend="what the same cut costs the trained models of {reference} (`lmzoo ablate`), with "
        "its interval over their seeds",
    ),
    *(Column(name, value=pl.lit(None, pl.Float64)) for name in AFTER_TRAINING_ENDS),
    *_plain("p_raw"),
    Column(
        "p", None, "p", lambda row, _: format_p(row["p"]), RESULTS, place=7, optional=4,
        legend="of a difference of 0, corrected for the points compared (all without baselines "
        "and leaking rows) and for the looks (how often it was ranked with more seeds); the "
        "sign is shown if it is below 0.05. Intervals are not corrected, so that of an undecided "
        "point may exclude 0",
    ),
    Column("verdict", None, "verdict", lambda row, _: verdict_text(row), RESULTS, place=3,
           is_text=True, legend="{words}"),
    Column("verdict", None, "verdict", lambda row, _: shown_verdict(row["verdict"]), BRIEF, place=3,
           is_text=True),
    *_plain("sign", "higher_is_better"),
    Column(
        "probability_worse", None, "chances", _chances, RESULTS, place=8,
        optional=2, legend="probabilities that the point is worse by more than the margin, "
        "within it, and better by more, for this point alone",
    ),
    *_plain("probability_within", "probability_better"),
    Column("half_corrected", NEAR_LOSS), Column("margin", LINEAR),
    *_plain("seeds_needed", "needs_tuning", "shared", "noisy"),
    Column(
        "perplexity", None, "ppl", _perplexity, RESULTS, legend="perplexity", optional=1,
        value=pl.when(HAS_PERPLEXITY).then(PERPLEXITY),
    ),
    Column("floor", LOSS),
    Column(
        "gap", FROM_FLOOR, "above floor", ".{digits}", RESULTS, optional=3,
        value=pl.col("loss") - pl.col("floor"),
        legend="loss minus the entropy of the source, which no model's expected loss is below",
    ),
    Column("parameters", None, "parameters", ",d", PROVENANCE),
    Column("setting", None, "setting chosen", _setting, PROVENANCE, place=10, is_text=True,
           is_json=True),
    *_plain("edge", "confirm"), Column("runs", None, "seeds", _seeds, PROVENANCE),
    *_plain("missing"),
    Column(
        "confirm_diverged", None, "diverged", _diverged, (*RESULTS, *BRIEF), is_text=True,
        legend="confirm runs that diverged; the means are of the others. p: Fisher's exact test "
        "of as many more, or fewer, than the reference's. The point ranks below all without one",
    ),
    *_plain("p_diverged"),
    Column("tune", None, "tuned", "d", PROVENANCE, optional=1),
    Column("pruned", None, "pruned", "d", PROVENANCE, optional=2),
    Column("diverged", None, "diverged", "d", PROVENANCE),
    Column("failed", None, "failed", "d", PROVENANCE),
    *_plain("leaks"), Column("marks", None, "marks", _marks, RESULTS, is_text=True),
    *_plain("kn5"),
    Column("kn5_difference", FROM_FIVE_GRAM, ends=("kn5_difference_low", "kn5_difference_high")),
    *_plain("bits_per_character", "bits_per_byte", *SIZE_COLUMNS),
    *_plain("architecture", "state_size", "flops", "seconds", "equations"),
    ACCURACY, *_plain("sequence_accuracy", "ceiling"),
)  # fmt: skip
"""Results of the points of a study, and how the setting of each was found."""

COMPARISON = (
    *_plain("point"), replace(POINT, tables=("compared",)),
    *_plain("score", "fingerprint"), Column("corpus", is_json=True),
    *_plain("vocab", "length", "epoch", "metric"), Column("floor", LOSS), *_plain(*SIZE_COLUMNS),
    ACCURACY, *_plain("sequence_accuracy", "ceiling", "reference", "seeds", "sequences"),
    Column(
        "difference", FROM_REFERENCE, "difference", _difference, ("compared",),
        ends=DIFFERENCE_ENDS, place=4,
    ),
    *_plain("p_raw"), BETTER,
    Column(
        "from_seeds", None, "from seeds", ".0%", ("compared",), optional=2,
        legend="share of the variance that more seeds would reduce",
    ),
    Column(
        "from_tuning", None, "from tuning", ".0%", ("compared",), optional=3,
        legend="share that more tuning runs would reduce; more test sequences would reduce the "
        "rest",
    ),
    Column(
        "rank_low", None, "rank", _ranks, ("compared",), ends=("rank_high",), place=1,
        legend="95 % interval over seeds, test sequences and tuning",
    ),
    Column("p", None, "p", lambda row, _: format_p(row["p"]), ("compared",), place=7),
)  # fmt: skip
"""Every point against one reference, over seeds and test sequences."""


JUDGED = (
    Column("table", cell=lambda row, _: row["table"], is_text=True),
    Column("rank", None, "rank", "d"),
    Column("variant", None, "variant", lambda row, _: row["variant"], is_text=True),
    Column("verdict", None, "verdict", is_text=True,
           cell=lambda row, _: verdict_text(row) if row["against"] else "reference"),
    Column("mean", LOSS, cell=".{digits}", ends=("low", "high")),
    Column("difference", LOSS, "difference", ends=DIFFERENCE_ENDS,
           cell=lambda row, digits: _difference(row, digits) if row["against"] else ""),
    Column("against", None, "against", lambda row, _: row["against"] or ""),
    Column("p", None, "p", lambda row, _: format_p(row["p"]) if row["against"] else ""),
    Column("seeds", None, "seeds", "d"),
    Column("diverged", None, "diverged", lambda row, _: str(row["diverged"] or "")),
)  # fmt: skip
"""Variants of any program; `table` and `mean` are shown by the names of their columns there."""

FRAMES = {"ranking": RANKING, "comparison": COMPARISON, "judged": JUDGED}
"""Frame of a command -> its columns, in order; intervals are null for a single seed."""
