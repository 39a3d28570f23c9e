"""Say which metrics are better if they are higher: one list of names, and their negations."""

import re

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import KNOWN_NAMES, plain

OPTIONS = {True: "--higher-is-better", False: "--lower-is-better"}
GOALS = r"(.*\.)?(goal|mode|direction|greater_is_better)"
NAMES = KNOWN_NAMES["directions"]["names"]
WORDS = KNOWN_NAMES["directions"]["words"]


def better(name: str) -> bool | None:
    """Return whether a higher value of a metric is better; None if its name does not say."""
    spaced = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = re.findall("[a-z]+[0-9]*", spaced.lower())

    def has(kind: str) -> bool:
        names = KNOWN_NAMES["metrics"][kind]
        return any(re.fullmatch(f"({names})(e?s)?[0-9]*", word) for word in words)

    is_turned = has("turns") or re.search(r"(^|[/_. ])(1 ?)?[-−] ?[A-Za-z]", spaced) is not None
    is_higher = has("higher")
    if is_higher == has("lower") or has("unsure") or (is_turned and has("of_classes")):
        return None
    return is_higher != is_turned


def direction_of(name: str) -> bool:
    """Return whether a higher value of a metric is better; a `UserError` if it is not known."""
    found = better(name)
    if found is None:
        what = repr(name) if name else "the last line"
        raise UserError(
            f"is a higher or a lower value of {what} better? Its name does not say; give "
            f"{OPTIONS[True]} or {OPTIONS[False]}"
        )
    return found


def stated(frame: pl.DataFrame) -> dict[str, bool | None]:
    """Return the directions that settings state: `{"metric": {"name": "acc", "goal": "max"}}`.

    None: they differ.
    """
    found: dict[str, bool | None] = {}
    for goal in filter(None, (re.fullmatch(GOALS, column) for column in frame.columns)):
        before = goal[1] or ""
        names = [before + name for name in NAMES if before + name in frame.columns]
        own = plain(frame[names[0]]) if names else [before[:-1].rpartition(".")[2]] * len(frame)
        for metric, word in zip(own, plain(frame[goal[0]]), strict=True):
            higher = WORDS.get(str(word).lower())
            if metric and higher is not None:
                found[metric] = higher if found.get(metric, higher) == higher else None
    return found
