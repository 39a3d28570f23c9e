"""Say whether a row of results counts: how its run ended, as a tracker or a program writes it."""

import re
from collections.abc import Iterable, Sequence

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import KNOWN_NAMES, NUMBER, STATE, plain, some

DIVERGED = "diverged"
DELETED = "deleted"
MEANS = "means and other summaries"
UNFINISHED = "not finished"
PARENTS = "parents of runs that have the metric"
ENDED_WELL = " ".join(KNOWN_NAMES["ended_well"].values()).split()
WORDS = {name: {*words} for name, words in KNOWN_NAMES["words"].items()}
WORDS["finished"] = {*ENDED_WELL}
YES = WORDS["yes"]
NO = WORDS["no"]
NOTHING = WORDS["nothing"]
SUMMARIES = WORDS["summaries"]
CHOICES = WORDS["choices"]
ANY = ".*"


FORMS = KNOWN_NAMES["forms"]
FLAGS = KNOWN_NAMES["flags"]
"""Kinds of columns that say whether a run counts; names.toml says more."""


def states(
    frame: pl.DataFrame, seed: str | None, free: Iterable[str], finished: Sequence[str],
    notes: list[str],
) -> pl.Series:  # fmt: skip
    """Return why the state of a row excludes it, or that it diverged; "" if it counts."""
    result = pl.repeat("", len(frame), eager=True)
    if STATE in frame.columns:
        result = frame[STATE].fill_null("")
    for name in filter(None, [*free, seed]):
        if name == STATE:
            reasons = []
        else:
            reasons = _reasons(frame[name], finished, notes, is_seed=name == seed)
        if any(reasons):
            known = frame[name].unique(maintain_order=True)
            own = frame[name].replace_strict(known, reasons, return_dtype=pl.String)
            result = own.zip_with(result == "", result)
    if (result != "").all() and not result.is_in([DELETED, DIVERGED]).any():
        kinds = some(result.unique(maintain_order=True).to_list())
        raise UserError(f"no row has finished: {kinds}; --finished STATE makes a state count")
    return result


def _reasons(
    column: pl.Series, finished: Sequence[str], notes: list[str], *, is_seed: bool
) -> list[str]:
    """Return why each different cell of a column excludes its row; "" if it does not."""
    name = column.name
    texts = [text or "" for text in plain(column.unique(maintain_order=True))]
    words = [text.lower() for text in texts]
    if name in KNOWN_NAMES["runs"]:  # a file among those of seeds may hold their mean
        words = [word.rpartition("/")[2] for word in words]
    given = {*filter(None, words)}
    rest = [re.fullmatch(NUMBER, word) for word in given - SUMMARIES - CHOICES]
    of_rows = SUMMARIES & given
    if rest and all(rest):
        of_rows = (SUMMARIES | CHOICES) & given
    elif name not in KNOWN_NAMES["runs"]:
        of_rows = set()
    if of_rows:
        return [MEANS if word in of_rows else "" for word in words]
    read = [] if is_seed or not given else [
        flag for flag in FLAGS
        if (
            given & WORDS[flag["counts"]] if flag["name"] == ANY else is_named(name, flag["name"])
        )
    ]  # fmt: skip
    fits = [
        flag for flag in read
        if all(re.fullmatch(FORMS[flag["form"]], word, re.DOTALL) for word in given)
    ]  # fmt: skip
    if not fits:
        is_number = all(rest) and not given <= YES | NO
        if read and len(texts) > 1 and (read[0] == FLAGS[0] or not is_number):
            several = some(sorted({text[:20] for text in texts} - {""}))
            notes.append(f"{name} ({several}) is no state: all rows count; is that right?")
        return []
    otherwise = fits[0]["otherwise"]
    counts = WORDS[fits[0]["counts"]] | {word.lower() for word in finished}
    reasons = []
    for text, word in zip(texts, words, strict=True):
        reason = otherwise
        if otherwise == UNFINISHED:
            reason = f"{otherwise} ({name} {text[:60]!r})"
        if word == DIVERGED:
            reason = DIVERGED
        is_good = {word, re.sub(r"^[a-z]\w*\.", "", word)} & counts
        reasons.append("" if is_good else reason)
    return reasons


def is_state(name: str) -> bool:
    """Return whether the name of a column says that it has states."""
    return any(is_named(name, flag["name"]) for flag in FLAGS if flag["name"] != ANY)


def may_be_state(head: pl.Series) -> bool:
    """Return whether a column, by its first cells, may say how runs ended."""
    words = [word.lower() for word in plain(head.unique()) if word]
    return is_state(head.name) or all(re.fullmatch(FORMS["state"], word) for word in words)


def is_named(name: str, pattern: str) -> bool:
    """Return whether a name is as described: `Exit Code`, `exitCode` and `exit_code` are one."""
    plain = re.sub(r"[ -]+|(?<=[a-z])(?=[A-Z])", "_", name)
    return bool(re.fullmatch(rf"(.*[./]_?|_)?{pattern}", plain, re.IGNORECASE))
