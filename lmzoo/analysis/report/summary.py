"""The answer of a study in one paragraph: how many points have which verdict, and on what."""

import json
from collections.abc import Sequence

import polars as pl

from lmzoo.analysis.load import StudyFolder
from lmzoo.analysis.units import UNITS, effect_words
from lmzoo.analysis.verdict_lines import VerdictGroup
from lmzoo.statistics.verdicts import BETTER, EQUIVALENT, UNDECIDED, WORSE


def summary(folder: StudyFolder, ranked: pl.DataFrame, answer: Sequence[VerdictGroup]) -> list[str]:
    """Return the sentences: the verdicts that were given, what the loss is, how it was measured."""
    return [*_verdicts(ranked, answer), _measured(folder, ranked)]


def _verdicts(ranked: pl.DataFrame, answer: Sequence[VerdictGroup]) -> list[str]:
    count = {group.verdict: len(group.points) for group in answer}
    reference = ranked.filter("reference")["label"]
    if reference.is_empty() or not count:
        return []
    total, margin = sum(count.values()), ranked["margin"].item(0)
    worse, better, free, open_ = (count.get(v, 0) for v in (WORSE, BETTER, EQUIVALENT, UNDECIDED))
    return [
        f"Of {total} points, {_are(worse)} worse than {reference.item(0)!r}, {_are(better)} "
        f"better, {_are(free)} equivalent within {margin:g} {effect_words('token')}, and "
        f"{_are(open_)} undecided."
    ]


def _measured(folder: StudyFolder, ranked: pl.DataFrame) -> str:
    """Return what the loss is of, and how the settings of the points were chosen."""
    row, budget = ranked.row(0, named=True), folder.study["budget"]
    names = sorted({json.loads(corpus).get("name", "corpus") for corpus in set(ranked["corpus"])})
    corpus = f" on {' and '.join(names)}"
    seeds = ranked["runs"].drop_nulls()
    low, high = (seeds.min(), seeds.max()) if len(seeds) else (0, 0)
    of_seeds = f"{low} seeds" if low == high else f"{low} to {high} seeds"
    tuned = f"; its setting is chosen from {budget['samples']}" if budget["samples"] > 1 else ""
    return (
        f"The loss is the {row['split']} {UNITS[row['metric']]}{corpus}; lower is better. Each "
        f"point has {of_seeds}{tuned}. Ranges are 95 % intervals."
    )


def _are(count: int) -> str:
    return "none is" if not count else "1 is" if count == 1 else f"{count} are"
