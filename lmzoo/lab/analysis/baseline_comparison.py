"""Compare exact rows with the n-gram baseline of their table, with modified Kneser-Ney smoothing.

On a contiguous text it is the n-gram whose order the validation split chooses, counted over the
whole text; elsewhere, and in records of earlier versions, it is the 5-gram.

    kn5_difference   loss − loss of the baseline, with its interval over seeds and tuning
    kn5              loses       a higher loss is shown
                     wins        a lower loss is shown
                     undecided   neither
                     one seed    there is no interval

The signs are those of `compared.py` with the baseline as the reference: all rows of a table
together are right with 95 %. Count models are not compared.
"""

import json
from collections.abc import Iterable

import polars as pl

from lmzoo.lab.analysis.formatting import format_number, join_labels
from lmzoo.lab.statistics.compared import compared
from lmzoo.lab.statistics.intervals import Array

FIVE_GRAM_NAME = "Kneser-Ney 5-gram"
FIVE_GRAM = {"name": "ngram_count", "order": 5, "smoothing": "kneser_ney"}
"""Fields of the 5-gram's model config; the point may have any label."""
TEXT_BASELINE_NAME = "Kneser-Ney n-gram"
"""Label of the baseline of a contiguous text."""
TEXT_BASELINE = {**FIVE_GRAM, "order": 0}
LOSES, WINS, UNDECIDED, ONE_SEED = "loses", "wins", "undecided", "one seed"
BASELINE_COLUMNS = ("kn5", "kn5_difference", "kn5_difference_low", "kn5_difference_high")
"""The columns that `add_baseline_columns` adds; null for rows that are not compared."""


def add_baseline_columns(table: pl.DataFrame, losses: Array, tuning_sd: Array) -> pl.DataFrame:
    """Add the comparison with the baseline of the same table to its points.

    A point whose model leaks may lose, but not win. The losses (P, S) and `tuning_sd` (P,) are
    those of `compared`.
    """
    models = [json.loads(text) if text else {} for text in table["model"]]
    own = pl.Series([model.get("name") != FIVE_GRAM["name"] for model in models], dtype=pl.Boolean)
    found = [
        i
        for fields in (TEXT_BASELINE, FIVE_GRAM)
        for i, model in enumerate(models)
        if fields.items() <= model.items()
    ]
    if not found:
        nothing = {name: pl.lit(None, pl.Float64) for name in BASELINE_COLUMNS[1:]}
        return table.with_columns(kn5=pl.lit(None, pl.String), **nothing)
    c = compared(losses, found[0], family=own.to_numpy(), tuning_sd=tuning_sd, margin=0.0)
    numbers = pl.DataFrame({"d": c.mean, "low": c.low, "high": c.high, "sign": c.sign})
    d, low, high, sign = (numbers.fill_nan(None)[name] for name in ("d", "low", "high", "sign"))
    rows = zip(own, d, sign, table["leaks"] != "", low, strict=True)
    words = [
        None if not compares or x is None
        else LOSES if side > 0
        else None if leaks
        else WINS if side < 0
        else ONE_SEED if end is None
        else UNDECIDED
        for compares, x, side, leaks, end in rows
    ]  # fmt: skip
    columns = (pl.Series(words, dtype=pl.String), d, low, high)
    return table.with_columns(
        pl.when(own).then(column).alias(name)
        for name, column in zip(BASELINE_COLUMNS, columns, strict=True)
    )


def baseline_lines(frame: pl.DataFrame) -> list[str]:
    """Return one line for each table of a ranking that has points not better than the baseline."""
    lines = []
    for own in frame.partition_by("fingerprint", maintain_order=True):
        part = own.filter(pl.col("kn5").is_not_null())
        if len(part):
            outcomes = part.select("label", "kn5", "kn5_difference").iter_rows()
            baseline = part["loss"][0] - part["kn5_difference"][0]
            lines.append(outcome_line(outcomes, baseline, baseline_name(own)))
    return [line for line in lines if line]


def baseline_name(frame: pl.DataFrame) -> str:
    """Return what the rows of a table are compared with."""
    chosen = frame["label"].str.ends_with(TEXT_BASELINE_NAME).any()
    return TEXT_BASELINE_NAME if chosen else FIVE_GRAM_NAME


def outcome_line(
    outcomes: Iterable[tuple[str, str, float]], baseline: float, baseline_name: str = FIVE_GRAM_NAME
) -> str:
    """List the rows, (label, outcome, difference), that are not better than the baseline's loss."""
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
            name = "it" if parts else f"{baseline_name} ({format_number(baseline, '.3f')})"
            parts.append(f"{text.format(name)}: {join_labels(labels)}")
    return "; ".join(parts)
