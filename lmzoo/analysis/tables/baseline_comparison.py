"""Compare exact rows with the n-gram baseline of their table, a modified Kneser-Ney 5-gram.

    kn5_difference   loss − loss of the 5-gram, with the row's own t-interval: the 5-gram's loss is
                     exact
    kn5              loses       the interval lies above 0
                     wins        the interval lies below 0
                     undecided   the interval includes 0
                     one seed    there is no interval

Count models are not compared.
"""

import json
from collections.abc import Iterable

import polars as pl

from lmzoo.analysis.text.formatting import format_number

FIVE_GRAM_NAME = "Kneser-Ney 5-gram"
FIVE_GRAM = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney"}
"""Fields of the 5-gram's model config; the point may have any label."""
LOSES, WINS, UNDECIDED, ONE_SEED = "loses", "wins", "undecided", "one seed"
BASELINE_COLUMNS = ("kn5", "kn5_difference", "kn5_difference_low", "kn5_difference_high")
"""The columns that `add_baseline_columns` adds; null for rows that are not compared."""


def add_baseline_columns(table: pl.DataFrame) -> pl.DataFrame:
    """Add the comparison with the 5-gram of the same table to its points.

    A point whose model leaks may lose, but not win. The columns model, leaks, loss, low and
    high are read.
    """
    models = [json.loads(text) if text else {} for text in table["model"]]
    is_count = [model.get("name") == FIVE_GRAM["name"] for model in models]
    is_five_gram = [FIVE_GRAM.items() <= model.items() for model in models]
    baseline = next(iter(table.filter(pl.Series(is_five_gram, dtype=pl.Boolean))["loss"]), None)
    compared = ~pl.Series(is_count, dtype=pl.Boolean)
    difference, low, high = (
        pl.when(compared).then(pl.col(name) - pl.lit(baseline, pl.Float64))
        for name in ("loss", "low", "high")
    )
    result = (
        pl.when(difference.is_null()).then(None)
        .when(low > 0).then(pl.lit(LOSES))
        .when(pl.col("leaks") != "").then(None)
        .when(high < 0).then(pl.lit(WINS))
        .when(low.is_null()).then(pl.lit(ONE_SEED))
        .otherwise(pl.lit(UNDECIDED))
    )  # fmt: skip
    columns = zip(BASELINE_COLUMNS, (result, difference, low, high), strict=True)
    return table.with_columns(column.alias(name) for name, column in columns)


def baseline_lines(frame: pl.DataFrame) -> list[str]:
    """Return one line for each table of a ranking that has points not better than the 5-gram."""
    lines = []
    compared = frame.filter(pl.col("kn5").is_not_null())
    for _, part in compared.group_by("fingerprint", maintain_order=True):
        row = part.row(0, named=True)
        outcomes = part.select("label", "kn5", "kn5_difference").iter_rows()
        lines.append(outcome_line(outcomes, row["loss"] - row["kn5_difference"]))
    return [line for line in lines if line]


def outcome(difference: float, half: float | None) -> str:
    """Return the outcome of one comparison, from the difference and half its interval."""
    if half is None:
        return ONE_SEED
    if abs(difference) <= half:
        return UNDECIDED
    return LOSES if difference > 0 else WINS


def outcome_line(outcomes: Iterable[tuple[str, str, float]], baseline: float) -> str:
    """List the rows, (label, outcome, difference), that are not better than the 5-gram's loss."""
    rows = list(outcomes)
    groups = (
        (LOSES, "loses to {}"),
        (UNDECIDED, "no clear difference from {}"),
        (ONE_SEED, "above {}, with one seed"),
    )
    parts: list[str] = []
    for kind, text in groups:
        labels = [
            label
            for label, result, difference in rows
            if result == kind and (kind != ONE_SEED or difference > 0)
        ]
        if labels:
            name = "it" if parts else f"{FIVE_GRAM_NAME} ({format_number(baseline, '.3f')})"
            parts.append(f"{text.format(name)}: {', '.join(labels)}")
    return "; ".join(parts)
