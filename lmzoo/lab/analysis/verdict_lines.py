"""The verdicts of a ranking in words: one line for each verdict, the largest effects first."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from lmzoo.lab.analysis.formatting import format_number
from lmzoo.lab.analysis.units import effect_words, margin_words
from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    MOST_SEEDS,
    NEGLIGIBLE,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
)

FEW = 2
"""Points whose verdicts fit one sentence."""
MOST = 8
"""Points that a line names; the others are counted."""
DAMAGED = 5
"""Damaged files that a ranking names; the others are counted."""


MEANINGS = {
    BETTER: "shown to be better by more than the margin",
    BETTER_OPEN: "shown to be better; whether by more than the margin is open",
    NEGLIGIBLE: "the difference is shown to be smaller than the margin; worse or better is its "
    "sign, if that is shown",
    WORSE_OPEN: "shown to be worse; whether by more than the margin is open",
    WORSE: "shown to be worse by more than the margin",
    UNDECIDED: "none of these is shown; the seeds or tuning runs named would decide it in four of "
    "five repetitions, if the measured difference is the true one",
}
"""What each verdict says. Later seeds can add to it, and never withdraw it."""
SHOWN = {WORSE_OPEN: "worse (size open)", BETTER_OPEN: "better (size open)"}


def verdict_text(row: Mapping[str, Any]) -> str:
    """Return the verdict of a row of a ranking as tables show it; "" if it has none."""
    verdict = row["verdict"]
    if verdict == NEGLIGIBLE and row["sign"]:
        return f"{NEGLIGIBLE} ({WORSE if row['sign'] > 0 else BETTER})"
    if verdict == UNDECIDED and row["seeds_needed"] is not None:
        return f"{UNDECIDED} (+{row['seeds_needed']} seeds)"
    if verdict == UNDECIDED and row["needs_tuning"]:
        return f"{UNDECIDED} (more tuning)"
    return SHOWN.get(verdict, verdict or "")


def words(frame: pl.DataFrame) -> str:
    """Return what the verdicts of a ranking say, those that it has."""
    found = set(frame["verdict"].drop_nulls())
    return "; ".join(f"{SHOWN.get(v, v)}: {text}" for v, text in MEANINGS.items() if v in found)


class VerdictGroup(NamedTuple):
    """The points with one verdict."""

    verdict: str
    head: str
    """The verdict in words: "worse than 'wild type'"."""
    points: list[str]
    """Each with its effect: "cut carry (6) (costs 0.10 to 0.14 nats)"."""
    ids: list[str]
    """The points' identities, in the same order."""


def verdict_lines(frame: pl.DataFrame) -> tuple[str, ...]:
    """Return lines such as "worse than 'wild type': cut carry (6) (costs 0.10 to 0.14 nats)"."""
    return tuple(f"{group.head}: {_listed(group.points)}" for group in verdict_groups(frame))


def answer(frame: pl.DataFrame) -> str:
    """Return what the verdicts of a ranking say together, in one sentence; "" without a verdict."""
    groups = verdict_groups(frame)
    if sum(len(group.points) for group in groups) <= FEW:
        text = "; ".join(verdict_lines(frame))
        return f"{text[0].upper()}{text[1:]}." if text else ""
    reference = frame.filter("reference")["label"].item(0)
    unit = frame["metric"].item(0)
    within = f"{format_number(frame['margin'].item(0), '.3g')} {margin_words(unit)}"
    count = {word: sum(len(g.points) for g in groups if g.verdict == word) for word in MEANINGS}
    first = {group.verdict: group.points[0] for group in reversed(groups)}
    better, worse = (
        sum(count[word] for word in words) for words in ((BETTER, BETTER_OPEN), (WORSE, WORSE_OPEN))
    )
    parts = [
        f"{better} better, most of all {first.get(BETTER) or first.get(BETTER_OPEN)}"
        * (better > 0),
        f"{count[NEGLIGIBLE]} within {within} of it" * (count[NEGLIGIBLE] > 0),
        f"{worse} worse, most of all {first.get(WORSE) or first.get(WORSE_OPEN)}" * (worse > 0),
        f"{count[UNDECIDED]} undecided" * (count[UNDECIDED] > 0),
    ]
    return (
        f"Of {sum(count.values())} points against {reference!r}: {'; '.join(filter(None, parts))}."
    )


def data_warnings(study: Mapping[str, Any], damaged: Sequence[str]) -> tuple[str, ...]:
    """Return what the user's text lost or leaks, from `study.json`, and what damage leaves out."""
    lines = [*(study.get("data") or {}).get("warnings", ()), *damaged[:DAMAGED]]
    if len(damaged) > DAMAGED:
        lines.append(f"{len(damaged) - DAMAGED} more files are damaged")
    return tuple(f"WARNING: {text}" for text in lines)


def impossible_warnings(frame: pl.DataFrame) -> tuple[str, ...]:
    """Return a line about the points of a ranking whose loss no causal density can have."""
    rows = frame.filter(pl.col("marks").list.contains("impossible")).to_dicts()
    if not rows:
        return ()
    losses = ", ".join(f"{r['label']} {r['loss']:.3f} (entropy {r['floor']:.3f})" for r in rows)
    return (f"WARNING: below the entropy of the source, which no causal density is: {losses}",)


def verdict_groups(frame: pl.DataFrame) -> tuple[VerdictGroup, ...]:
    """Return the verdicts that some point has: what is free, then what costs, the largest first."""
    reference = frame.filter("reference")["label"]
    if reference.is_empty():
        return ()
    rows = frame.filter(pl.col("verdict").is_not_null()).sort("difference", nulls_last=True)
    groups: dict[str, list[dict[str, Any]]] = {phrase: [] for _, phrase, _ in _PHRASES}
    for row in rows.to_dicts():
        groups[_phrase(row)].append(row)
    for verdict, phrase, _ in _PHRASES:
        if verdict in (WORSE, WORSE_OPEN):
            groups[phrase].reverse()
    unit = frame["metric"].item(0)
    margin = f"{format_number(frame['margin'].item(0), '.3g')} {margin_words(unit)}"
    return tuple(
        VerdictGroup(
            verdict,
            phrase.format(name=repr(reference.item(0)), margin=margin),
            [describe(row) for row in groups[phrase]],
            [row["point"] for row in groups[phrase]],
        )
        for verdict, phrase, describe in _PHRASES
        if groups[phrase]
    )


def _phrase(row: Mapping[str, Any]) -> str:
    """Return the head of a row's group: its verdict, and what would decide an undecided one."""
    if row["verdict"] != UNDECIDED:
        return next(phrase for verdict, phrase, _ in _PHRASES if verdict == row["verdict"])
    return SEEDS if row["seeds_needed"] is not None else TUNING if row["needs_tuning"] else NOTHING


def _listed(texts: Sequence[str]) -> str:
    rest = f", and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return ", ".join(texts[:MOST]) + rest


def _worse(row: Mapping[str, Any]) -> str:
    return _effect(row, "costs", row["difference_low"], row["difference_high"])


def _better(row: Mapping[str, Any]) -> str:
    low, high = row["difference_low"], row["difference_high"]
    return _effect(row, "gains", None if high is None else -high, None if low is None else -low)


def _effect(row: Mapping[str, Any], verb: str, low: float | None, high: float | None) -> str:
    if row["difference"] is None:
        return f"{row['label']} ({row['confirm_diverged']} of {row['confirm']} seeds diverged)"
    return f"{row['label']} ({verb} {effect_range(low, high)} {effect_words(row['metric'])})"


def _undecided(row: Mapping[str, Any]) -> str:
    between = effect_range(row["difference_low"], row["difference_high"])
    seeds = row["seeds_needed"]
    return f"{row['label']} ({between}{'' if seeds is None else f'; about {seeds} more'})"


def _negligible(row: Mapping[str, Any]) -> str:
    between = effect_range(row["difference_low"], row["difference_high"], least=3)
    return f"{row['label']} ({between})"


def effect_range(low: float | None, high: float | None, *, least: int = 2) -> str:
    """Return "0.10 to 0.14": as many decimals as the width deserves, and at least `least`."""
    if low is None or high is None:
        return "unknown"
    digits = max(least, 2 if high - low >= 0.01 else 3 if high - low >= 0.001 else 4)
    form = f".{digits}f"
    ends = [format_number(round(end, digits) + 0.0, form) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


SEEDS = "undecided, needs more seeds"
TUNING = (
    "undecided, needs more tuning runs (--samples), because the choice of its setting is uncertain"
)
NOTHING = f"undecided, needs more than {MOST_SEEDS:,} seeds"
_PHRASES = (
    (BETTER, "better than {name} by more than {margin}", _better),
    (BETTER_OPEN, "better than {name}, size open", _better),
    (NEGLIGIBLE, "negligible difference from {name}, below {margin}", _negligible),
    (WORSE, "worse than {name} by more than {margin}", _worse),
    (WORSE_OPEN, "worse than {name}, size open", _worse),
    *((UNDECIDED, phrase, _undecided) for phrase in (SEEDS, TUNING, NOTHING)),
)
