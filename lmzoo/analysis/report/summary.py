"""The answer of a study in one paragraph: which points are free, and which one is the best."""

import json
from collections.abc import Sequence

import polars as pl

from lmzoo.analysis.formatting import format_number
from lmzoo.analysis.load import StudyFolder
from lmzoo.analysis.search_ranges import search_ranges
from lmzoo.analysis.units import UNITS, effect_words
from lmzoo.analysis.verdict_lines import VerdictGroup, effect_range
from lmzoo.statistics.verdicts import BETTER, EQUIVALENT, UNDECIDED, WORSE


def summary(folder: StudyFolder, ranked: pl.DataFrame, answer: Sequence[VerdictGroup]) -> list[str]:
    """Return the sentences: the answer, how many verdicts there are, what the loss is."""
    return [*_answer(ranked, answer), _measured(folder, ranked)]


def _answer(ranked: pl.DataFrame, answer: Sequence[VerdictGroup]) -> list[str]:
    count = {group.verdict: len(group.points) for group in answer}
    reference = ranked.filter("reference")["label"]
    if reference.is_empty() or not count:
        return []
    name, total = reference.item(0), sum(count.values())
    within = f"{ranked['margin'].item(0):g} {effect_words('token')}"
    worse, better, free, open_ = (count.get(v, 0) for v in (WORSE, BETTER, EQUIVALENT, UNDECIDED))
    found = (
        f"{_points(better)} shown to be better than {name!r}, and {_are(free)} shown to be "
        f"equivalent to it within {within}."
    )
    return [
        f"{found} {_best(ranked, name)}",
        f"Of the {total} points compared with {name!r}, {_are(worse)} worse and {_are(open_)} "
        "undecided.",
    ]


def _best(ranked: pl.DataFrame, reference: str) -> str:
    """Return a sentence on the point with the lowest loss among those that have a verdict."""
    rows = ranked.filter(pl.col("verdict").is_not_null(), pl.col("difference").is_not_null())
    row = rows.sort("difference").row(0, named=True)
    side = "below" if row["difference"] < 0 else "above"
    between = effect_range(row["difference_low"], row["difference_high"])
    loss = format_number(row["loss"], ".3f")
    return (
        f"The lowest loss of the points compared has {row['label']!r}: {loss}, "
        f"which is {abs(row['difference']):.3f} {side} {reference!r} (difference {between}; "
        f"{row['verdict']})."
    )


def _measured(folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return what the loss is of, and how the settings of the points were chosen."""
    row, samples = ranked.row(0, named=True), folder.study["budget"]["samples"]
    names = sorted({json.loads(corpus).get("name", "corpus") for corpus in set(ranked["corpus"])})
    seeds = ranked["runs"].drop_nulls()
    low, high = (seeds.min(), seeds.max()) if len(seeds) else (0, 0)
    of_seeds = f"{low} seeds" if low == high else f"{low} to {high} seeds"
    fields = ", ".join(search_ranges(folder.study))
    tuned = f" Its {fields} is chosen from {samples} tuning runs." if samples > 1 and fields else ""
    return (
        f"The loss is the {row['split']} {UNITS[row['metric']]} on {' and '.join(names)}; lower is "
        f"better. Each point is trained with {of_seeds}.{tuned} Ranges are 95 % intervals of one "
        "difference. A verdict also corrects for the number of points, so the range of an "
        "undecided point may exclude 0."
    )


def _points(count: int) -> str:
    return f"{count} points are" if count > 1 else "1 point is" if count else "No point is"


def _are(count: int) -> str:
    return "none is" if not count else "1 is" if count == 1 else f"{count} are"
