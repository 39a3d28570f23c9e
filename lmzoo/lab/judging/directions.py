"""Say which metrics are better if they are higher: one list of names, and their negations."""

import re

from polars import DataFrame

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import KNOWN_NAMES, plain

OPTIONS = {True: "--higher-is-better", False: "--lower-is-better"}
GOALS = re.compile(r"((?:.*\.)?)(goal|mode|direction|greater_is_better)")
NAMES = KNOWN_NAMES["directions"]["names"]
WORDS = KNOWN_NAMES["directions"]["words"]


def better(name: str) -> bool | None:
    """Return whether a higher value of a metric is better; None if its name does not say."""
    # Names are written as valLoss, val_loss and val/loss.
    spaced = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = re.findall("[a-z]+[0-9]*", spaced.lower())
    kinds = set()
    for kind, names in KNOWN_NAMES["metrics"].items():
        pattern = re.compile(f"({names})(e?s)?[0-9]*")
        if any(map(pattern.fullmatch, words)):
            kinds.add(kind)
    # "-loss" and "1 - acc" are better the other way round.
    if re.search(r"(^|[/_. ])(1 ?)?[-−] ?[A-Za-z]", spaced):
        kinds.add("turns")
    is_turned = "turns" in kinds
    is_higher = "higher" in kinds
    is_lower = "lower" in kinds
    # To guess a direction would turn the better variant into the worse one, so a doubt asks.
    if is_higher == is_lower or "unsure" in kinds:
        return None
    if is_turned and "of_classes" in kinds:
        return None
    return is_higher != is_turned


def direction_of(name: str) -> bool:
    """Return whether a higher value of a metric is better; a `UserError` if it is not known."""
    found = better(name)
    if found is None:
        what = "the last line"
        if name:
            what = repr(name)
        raise UserError(
            f"is a higher or a lower value of {what} better? Its name does not say; give "
            f"{OPTIONS[True]} or {OPTIONS[False]}"
        )
    return found


def stated(frame: DataFrame) -> dict[str, bool | None]:
    """Return the directions that settings state: `{"metric": {"name": "acc", "goal": "max"}}`.

    None: they differ.
    """
    found = {}
    for column in frame.columns:
        goal = GOALS.fullmatch(column)
        if goal is None:
            continue
        before = goal[1]
        _, _, parent = before[:-1].rpartition(".")
        # If there is no name, the object that has the goal has the name of the metric.
        metrics = [parent] * len(frame)
        for name in NAMES:
            if before + name in frame.columns:
                metrics = plain(frame[before + name])
                break
        for metric, word in zip(metrics, plain(frame[column]), strict=True):
            higher = WORDS.get(str(word).lower())
            if metric and higher is not None:
                add_direction(found, metric, is_higher=higher)
    return found


def add_direction(found: dict[str, bool | None], metric: str, *, is_higher: bool | None):
    """Add whether a higher value of a metric is better; None if it had another direction."""
    if found.get(metric, is_higher) != is_higher:
        is_higher = None
    found[metric] = is_higher
