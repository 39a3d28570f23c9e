"""Does a row beat counting? Exact rows against the modified Kneser-Ney 5-gram of their table.

    kn5_difference   loss − loss of the 5-gram, with the row's own t-interval: counting has none
    kn5              loses           the interval lies above 0
                     wins            it lies below 0
                     not told apart  it holds 0
                     one seed        there is none

Nothing is said of count models, nor where the entropy of the corpus is known: there the
floor says more.
"""

import json
from collections.abc import Iterable

import polars as pl

from lmzoo.analysis.formatting import number

NAME = "Kneser-Ney 5-gram"
COUNTED = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney"}
"""The config of its model, whatever a study calls it."""
LOSES, WINS, OPEN, LONE = "loses", "wins", "not told apart", "one seed"
AGAINST = ("kn5", "kn5_difference", "kn5_difference_low", "kn5_difference_high")
"""The columns that are added; null where nothing is said."""


def against_counting(table: pl.DataFrame) -> pl.DataFrame:
    """The points of one table, each with how it stands to the table's 5-gram.

    A table holds one kind of score, and counting is exact: all others are let be.
    A row that leaks may lose, for all its help, but not win.
    Columns read: model, floor_token, leaks, loss, low, high.
    """
    models = [json.loads(text) if text else {} for text in table["model"]]
    counts = pl.Series([model.get("name") == COUNTED["name"] for model in models], dtype=pl.Boolean)
    is_kn5 = pl.Series([COUNTED.items() <= model.items() for model in models], dtype=pl.Boolean)
    kn5 = next(iter(table.filter(is_kn5)["loss"]), None)
    judged = pl.col("floor_token").is_null() & ~counts
    difference, low, high = (
        pl.when(judged).then(pl.col(own) - pl.lit(kn5, pl.Float64))
        for own in ("loss", "low", "high")
    )
    said = (
        pl.when(difference.is_null()).then(None)
        .when(low > 0).then(pl.lit(LOSES))
        .when(pl.col("leaks") != "").then(None)
        .when(high < 0).then(pl.lit(WINS))
        .when(low.is_null()).then(pl.lit(LONE))
        .otherwise(pl.lit(OPEN))
    )  # fmt: skip
    added = (said, difference, low, high)
    return table.with_columns(
        column.alias(name) for name, column in zip(AGAINST, added, strict=True)
    )


def seriousness(frame: pl.DataFrame) -> list[str]:
    """A line for each table of a ranking with a row that does not beat the 5-gram."""
    lines = []
    known = frame.filter(pl.col("kn5").is_not_null())
    for _, part in known.group_by("fingerprint", maintain_order=True):
        row = part.row(0, named=True)
        verdicts = part.select("label", "kn5", "kn5_difference").iter_rows()
        lines.append(losers(verdicts, row["loss"] - row["kn5_difference"]))
    return [line for line in lines if line]


def verdict(difference: float, half: float | None) -> str:
    """The verdict on one difference and half its interval."""
    if half is None:
        return LONE
    if abs(difference) <= half:
        return OPEN
    return LOSES if difference > 0 else WINS


def losers(verdicts: Iterable[tuple[str, str, float]], kn5: float) -> str:
    """What is said of (label, verdict, difference) triples, '' if nobody is above the 5-gram."""
    parts, counted = [], f"{NAME} ({number(kn5, '.3f')})"
    rows = list(verdicts)
    for said, words in ((LOSES, "loses to"), (OPEN, "not told apart from"), (LONE, "above")):
        labels = [
            label for label, found, away in rows if found == said and (said != LONE or away > 0)
        ]
        if labels:
            once = ", with one seed" if said == LONE else ""
            parts.append(f"{words} {'it' if parts else counted}{once}: {', '.join(labels)}")
    return "; ".join(parts)
