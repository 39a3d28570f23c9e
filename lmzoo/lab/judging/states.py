"""Say whether a row of results counts: how its run ended, as a tracker or a program writes it."""

import re
from collections.abc import Iterable, Sequence

import polars as pl
from polars import DataFrame, Series, String

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields
from lmzoo.lab.judging.texts import KNOWN_NAMES, NUMBER, STATE, all_match, plain, some

DIVERGED = "diverged"
DELETED = "deleted"
MEANS = "means and other summaries"
UNFINISHED = "not finished"
PARENTS = "parents of runs that have the metric"
WORDS = {name: set(words) for name, words in KNOWN_NAMES["words"].items()}
WORDS["finished"] = set(" ".join(KNOWN_NAMES["ended_well"].values()).split())
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
    frame: DataFrame,
    seed: str | None,
    free: Iterable[str],
    finished: Sequence[str],
    notes: list[str],
) -> Series:
    """Return why the state of a row excludes it, or that it diverged; "" if it counts."""
    result = pl.repeat("", len(frame), eager=True)
    if STATE in frame.columns:
        result = frame[STATE].fill_null("")
    names = [name for name in free if name != STATE]
    if seed is not None:
        names.append(seed)
    for name in names:
        cells = frame[name]
        reasons = _reasons(cells, finished, notes, is_seed=name == seed)
        if any(reasons):
            known = cells.unique(maintain_order=True)
            own = cells.replace_strict(known, reasons, return_dtype=String)
            result = own.zip_with(result == "", result)
    # A program with words of its own for an end would lose all of its runs.
    kinds = result.unique(maintain_order=True).to_list()
    if {"", DELETED, DIVERGED}.isdisjoint(kinds):
        raise UserError(f"no row has finished: {some(kinds)}; --finished STATE makes a state count")
    return result


def _reasons(
    column: Series, finished: Sequence[str], notes: list[str], *, is_seed: bool
) -> list[str]:
    """Return why each different cell of a column excludes its row; "" if it does not."""
    name = column.name
    known = column.unique(maintain_order=True)
    texts = [text or "" for text in plain(known)]
    words = list(map(str.lower, texts))
    if name in KNOWN_NAMES["runs"]:  # a file among those of seeds may hold their mean
        words = [word.rpartition("/")[2] for word in words]
    given = set(filter(None, words))
    # First: the word "mean" among numbers is neither a state nor a seed.
    summaries = dict.fromkeys(_summaries(name, given), MEANS)
    if summaries:
        return [summaries.get(word, "") for word in words]
    read = []
    if given and not is_seed:
        read = [flag for flag in FLAGS if _is_read(flag, name, given)]
    fits = [flag for flag in read if all_match(FORMS[flag["form"]], given)]
    if fits:
        return _of_flag(fits[0], name, texts, words, finished)
    others = given - SUMMARIES - CHOICES
    is_number = all_match(NUMBER, others) and not given <= YES | NO
    # A column that only looks like one of states must not leave out runs in silence.
    if read and len(texts) > 1 and (read[0] == FLAGS[0] or not is_number):
        shown = sorted({text[:20] for text in texts if text})
        notes.append(f"{name} ({some(shown)}) is no state: all rows count; is that right?")
    return []


def _summaries(name: str, words: set[str]) -> set[str]:
    """Return the words of a column that say that a row is no run."""
    others = words - SUMMARIES - CHOICES
    if others and all_match(NUMBER, others):
        return words & (SUMMARIES | CHOICES)
    if name in KNOWN_NAMES["runs"]:
        return words & SUMMARIES
    return set()


def _is_read(flag: Fields, name: str, words: set[str]) -> bool:
    """Return whether a column is of this kind, by its name or, for any name, by its words."""
    if flag["name"] == ANY:
        return not words.isdisjoint(WORDS[flag["counts"]])
    return is_named(name, flag["name"])


def _of_flag(
    flag: Fields, name: str, texts: Sequence[str], words: Sequence[str], finished: Sequence[str]
) -> list[str]:
    """Return the reasons of the cells of a column of states."""
    counts = WORDS[flag["counts"]].union(map(str.lower, finished))
    reasons = []
    for text, word in zip(texts, words, strict=True):
        reason = flag["otherwise"]
        if reason == UNFINISHED:
            reason = f"{reason} ({name} {text[:60]!r})"
        if word == DIVERGED:
            reason = DIVERGED
        # `TrialState.COMPLETE` is how Python prints such a state.
        if word in counts or re.sub(r"^[a-z]\w*\.", "", word) in counts:
            reason = ""
        reasons.append(reason)
    return reasons


def is_state(name: str) -> bool:
    """Return whether the name of a column says that it has states."""
    patterns = [flag["name"] for flag in FLAGS if flag["name"] != ANY]
    return any(is_named(name, pattern) for pattern in patterns)


def may_be_state(head: Series) -> bool:
    """Return whether a column, by its first cells, may say how runs ended."""
    if is_state(head.name):
        return True
    texts = filter(None, plain(head.unique()))
    return all_match(f"(?i){FORMS['state']}", texts)


def is_named(name: str, pattern: str) -> bool:
    """Return whether a name is as described: `Exit Code`, `exitCode` and `exit_code` are one."""
    plain = re.sub(r"[ -]+|(?<=[a-z])(?=[A-Z])", "_", name)
    return bool(re.fullmatch(rf"(.*[./]_?|_)?{pattern}", plain, re.IGNORECASE))
