"""The verdicts of a ranking in words: one line for each verdict, the largest effects first."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from polars import DataFrame, col

from lmzoo.base.plain import Fields, Texts
from lmzoo.lab.analysis.formatting import (
    digits_of,
    effect_words,
    format_ends,
    format_number,
)
from lmzoo.lab.analysis.words import WORDS
from lmzoo.lab.statistics.compared import (
    BETTER,
    BETTER_OPEN,
    MOST_SEEDS,
    NEGLIGIBLE,
    SHOWN,
    UNDECIDED,
    WORSE,
    WORSE_OPEN,
)

NOT_CONFIRMED = "unsure"
"""Follows a verdict whose sign no fresh seeds have repeated."""
FEW = 2
"""Points whose verdicts fit one sentence."""
MOST = 8
"""Points that a line names; the others are counted."""


MEANINGS: dict[str, str] = WORDS["meanings"]
"""What each verdict says. Further seeds add to it; reruns and added points can withdraw it."""


def verdict_text(row: Fields) -> str:
    """Return the verdict of a row of a ranking as tables show it; "" if it has none."""
    verdict = row["verdict"]
    # A difference whose sign is shown exists, though it is too small to matter.
    if verdict == NEGLIGIBLE and row["sign"]:
        side = WORSE
        is_above = row["sign"] > 0
        # The sign is that of the metric, so what is better depends on its direction.
        if is_above == bool(row.get("higher_is_better")):
            side = BETTER
        return f"{NEGLIGIBLE} ({side})"
    if verdict == UNDECIDED and row["seeds_needed"] is not None:
        return f"{UNDECIDED} (+{row['seeds_needed']} seeds)"
    # No number of seeds decides while the choice of the setting is so uncertain.
    if verdict == UNDECIDED and row["needs_tuning"]:
        return f"{UNDECIDED} (more tuning)"
    return shown_verdict(verdict, confirmed=row["confirmed"])


def shown_verdict(verdict: str | None, *, confirmed: bool = True) -> str:
    """Return the words of a verdict for people; "" for None."""
    if verdict is None:
        return ""
    if confirmed or verdict in (NEGLIGIBLE, UNDECIDED):
        return SHOWN.get(verdict, verdict)
    return f"{verdict.removesuffix('-open')}, {NOT_CONFIRMED}"


def meanings(frame: DataFrame) -> list[str]:
    """Return what the verdicts of a table say, those that it has."""
    found = set(frame["verdict"].drop_nulls())
    said = [
        f"{SHOWN.get(verdict, verdict)}: {text}"
        for verdict, text in MEANINGS.items()
        if verdict in found
    ]
    is_sign = ~col("verdict").is_in([NEGLIGIBLE, UNDECIDED])
    # The words of a verdict do not say why it is unsure.
    if frame.filter(is_sign & ~col("confirmed")).height:
        said.append(f"{NOT_CONFIRMED}: no fresh seeds have repeated the sign")
    return said


def verdict_lines(frame: DataFrame) -> Texts:
    """Return lines such as "worse than 'wild type': cut carry (6) (costs 0.10 to 0.14 nats)"."""
    return tuple(f"{head}: {_listed(points)}" for _, head, points in _groups(frame))


def answer(frame: DataFrame) -> str:
    """Return what the verdicts of a ranking say together, in one sentence; "" without a verdict."""
    groups = _groups(frame)
    if sum(len(points) for _, _, points in groups) <= FEW:
        text = "; ".join(verdict_lines(frame))
        if not text:
            return ""
        return f"{text[0].upper()}{text[1:]}."
    count = Counter()
    said = {NEGLIGIBLE: f"within {_margin(frame)}", UNDECIDED: UNDECIDED}
    unsure = Counter()
    for shown, _, points in groups:
        # "worse (size open)" and "worse, unsure" count as worse.
        side = shown.partition(" ")[0].rstrip(",")
        count[side] += len(points)
        said.setdefault(side, f"{side}, largest effect: {points[0]}")
        if shown.endswith(NOT_CONFIRMED):
            unsure[side] += len(points)
    parts = []
    for side in (BETTER, NEGLIGIBLE, WORSE, UNDECIDED):
        verb = "are"
        if count[side] == 1:
            verb = "is"
        words = said.get(side, "")
        # A sign that fresh seeds have not repeated counts less than the others.
        if unsure[side]:
            words = words.replace(side, f"{side} ({unsure[side]} unsure)", 1)
        if count[side]:
            parts.append(f"{count[side]} {verb} {words}")
    reference = frame.filter("reference")["label"].item(0)
    return f"{count.total()} points against {reference!r}: {'; '.join(parts)}."


def _groups(frame: DataFrame) -> list[tuple[str, str, list[str]]]:
    """Return the words, the head and the points of each group, in the order of `_PHRASES`."""
    reference = frame.filter("reference")["label"]
    if reference.is_empty():
        return []
    # A metric that is maximized has its own sign in all tables.
    is_higher = frame["higher_is_better"].item(0)
    ranked = frame.drop_nulls("verdict")
    # The answer names the first point of each group as the one of the largest effect.
    ranked = ranked.sort("difference", descending=is_higher, nulls_last=True)
    rows = defaultdict(list)
    for row in ranked.to_dicts():
        rows[_phrase(row)].append(row)
    found = []
    for shown, phrase, describe in _PHRASES:
        points = list(map(describe, rows[phrase]))
        if points:
            name = repr(reference.item(0))
            head = phrase.format(name=name, margin=_margin(frame))
            # What costs most is named first.
            if shown.startswith(WORSE):
                points.reverse()
            found.append((shown, head, points))
    return found


def _margin(frame: DataFrame) -> str:
    row = frame.row(0, named=True)
    return f"{format_number(row['margin'], '.3g')} {effect_words(row['metric'])}"


def _phrase(row: Fields) -> str:
    """Return the head of a row's group: its verdict, and what would decide an undecided one."""
    verdict = row["verdict"]
    if verdict != UNDECIDED:
        shown = shown_verdict(verdict, confirmed=row["confirmed"])
        return next(phrase for words, phrase, _ in _PHRASES if words == shown)
    # A point with one seed needs a second one, not a thousand.
    if row["difference_low"] is None and row.get("solved") is None:
        return UNMEASURED
    if row["seeds_needed"] is not None:
        return SEEDS
    if row["needs_tuning"]:
        return TUNING
    return NOTHING


def _listed(texts: Sequence[str]) -> str:
    named = ", ".join(texts[:MOST])
    if len(texts) <= MOST:
        return named
    return f"{named}, and {len(texts) - MOST} more"


def _effect(row: Fields) -> str:
    """Return a point with the size of what it costs or gains."""
    ends = (row["difference_low"], row["difference_high"])
    is_worse = row["verdict"] in (WORSE, WORSE_OPEN)
    verb = "gains"
    if is_worse:
        verb = "costs"
    if is_worse == row["higher_is_better"] and None not in ends:
        # What a change costs or gains is a size, without the sign of its difference.
        ends = (-ends[1], -ends[0])
    low, high = ends
    # Where counts of diverged runs show the verdict, the interval of the mean may contradict it.
    by_count = row["p_diverged"] is not None and low is not None and low < 0
    if row["difference"] is None or by_count:
        return f"{row['label']} ({counted_words(row)})"
    margin = float(f"{row['margin']:.3g}")  # as shown: no end beyond it is rounded below it
    least = 2
    for decimals in range(2, 7):
        if low is not None and round(low, decimals) >= margin:
            least = decimals
            break
    effect = _range(low, high, least=least)
    return f"{row['label']} ({verb} {effect} {effect_words(row['metric'])})"


def counted_words(row: Fields) -> str:
    """Return how many seeds of a row solve its task, or diverge."""
    if row.get("solved") is None:
        return f"{row['confirm_diverged']} of {row['confirm']} seeds diverged"
    return f"solves {row['solved']} of {row['confirm'] - row['missing']} seeds"


def _undecided(row: Fields) -> str:
    label = row["label"]
    more = ""
    if row["seeds_needed"] is not None:
        more = f"; about {row['seeds_needed']} more"
    if row.get("solved") is not None:
        return f"{label} ({counted_words(row)}{more})"
    low = row["difference_low"]
    if low is None:
        return f"{label} ({row['runs']} of {row['confirm']} seeds)"
    effect = _range(low, row["difference_high"])
    return f"{label} ({effect}{more})"


def _negligible(row: Fields) -> str:
    effect = _range(row["difference_low"], row["difference_high"], least=3)
    return f"{row['label']} ({effect})"


def _range(low: float | None, high: float | None, *, least: int = 2) -> str:
    if low is None or high is None:
        return "unknown"
    width = high - low
    digits = 4
    if width >= 0.01:
        digits = 2
    elif width >= 0.001:
        digits = 3
    form = f".{max(least, digits)}f"
    # A tiny or a huge metric would be zeros, or digits that mean nothing.
    if 0 < width < 1e-4:
        form = f".{digits_of(width, (low, high), 4)}"
    elif width >= 100:
        form = ".0f"
    ends = format_ends(low, high, form)
    return " to ".join(dict.fromkeys(ends))


SEEDS = "undecided, needs more seeds"
TUNING = (
    "undecided, needs more tuning runs (--samples), because the choice of its setting is uncertain"
)
UNSURE = "{}, unsure: no fresh seeds have repeated the sign"
NOTHING = f"undecided, needs more than {MOST_SEEDS:,} seeds"
UNMEASURED = "undecided, needs two seeds with a loss"
_PHRASES = (
    (BETTER, "better than {name} by more than {margin}", _effect),
    (SHOWN[BETTER_OPEN], "better than {name}, size open", _effect),
    (f"{BETTER}, {NOT_CONFIRMED}", UNSURE.format("better than {name}"), _effect),
    (NEGLIGIBLE, "negligible difference from {name}, below {margin}", _negligible),
    (WORSE, "worse than {name} by more than {margin}", _effect),
    (SHOWN[WORSE_OPEN], "worse than {name}, size open", _effect),
    (f"{WORSE}, {NOT_CONFIRMED}", UNSURE.format("worse than {name}"), _effect),
    (UNDECIDED, SEEDS, _undecided),
    (UNDECIDED, TUNING, _undecided),
    (UNDECIDED, NOTHING, _undecided),
    (UNDECIDED, UNMEASURED, _undecided),
)
"""Words of a verdict, the head of their line, and how a point is written there."""
