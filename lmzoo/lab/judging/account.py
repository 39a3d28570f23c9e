"""Account for every row of results: which run it is, and why it does not count.

A row counts, or has one reason:

    deleted              its tracker deleted the run
    not finished         its state is none of `FINISHED`; an unknown state is no result
    without a variant    or without a seed or a table
    other rows of runs   a history has one row that counts: the last one with a value
    without a value      an empty cell
    without a pair       its seed has no run to compare with, in a paired judgement

A run that diverged (NaN or infinity) counts as such and is in no mean. Nothing is left out of a
judgement anywhere else, so the numbers of the reasons add up to the rows that were read.
"""

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import polars as pl

from lmzoo.base.errors import UserError, near
from lmzoo.lab.judging.reports import LARGEST, number
from lmzoo.lab.judging.sources import as_source
from lmzoo.lab.judging.texts import RUN, STATE

FINISHED = {
    "finished", "finish", "complete", "completed", "done", "ended", "success", "succeeded",
    "successful", "terminated", "ok", "passed", "keep", "discard", "published",
}  # fmt: skip
"""States of runs whose results count: of W&B, MLflow, Optuna, Ray Tune, SLURM and others."""
FALSE = {"false", "0", "0.0", "no"}
FLAGS = {
    r"(.*[./ ])?((run|trial|job)_?)?(state|status)": FINISHED,
    r"(.*[./ ])?lifecycle_stage": {"active"},
    r"(.*[./ ])?(exit_?(code|status)|return_?code)": {"0", "0.0", "0:0"},
    r"(.*[./ ])?(is_)?(deleted|trashed|archived|crashed|failed|killed)": FALSE,
}
"""Names of columns that say whether a run counts -> the values with which it does."""
SEEDS = r"(.*[./ _-])?(seeds?|random_state)"
STEPS = r"(.*[./ _-])?(step|epoch|iter|iteration)s?"
RUNS = (RUN, "run_id", "trial_id", "run_name", "Run")
"""Columns that tell runs apart where there is no seed."""
NAMES = (RUN, "Name", "run_name", "name", "displayName")
"""Columns of names of runs, for `--parse`."""
COUNTED, DIVERGED, DELETED = "counted", "diverged", "deleted"
OTHER, NO_PAIR = "other rows of runs", "without a pair"
SHOWN = 3
"""Examples in a line."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to compare; the fields are the arguments of `judge`."""

    by: str | Sequence[str]
    metric: str
    seed: str | None = None
    reference: str | None = None
    margin: float = 0.0
    higher_is_better: bool = False
    within: str | None = None
    successive: bool = False
    paired: bool | None = None
    step: str | None = None
    parse: str | None = None
    finished: Sequence[str] = ()


class Account(NamedTuple):
    """All rows of a source, and its runs."""

    rows: pl.DataFrame
    """table, variant, seed, step, value, state, why; one row per row read."""
    runs: pl.DataFrame
    """table, variant, seed, value (null: missing), row; one row per run that is not deleted."""
    question: Question
    """With the seed and the direction that were found."""
    notes: list[str]

    def line(self) -> str:
        """Return the rows read and the number of each reason."""
        counts = Counter(self.rows["why"])
        reasons = sorted(counts, key=lambda why: (why != COUNTED, why != DIVERGED, why))
        said = ", ".join(f"{counts[why]:,} {why}" for why in reasons)
        n = len(self.rows)
        return f"{n:,} row{'s' * (n != 1)} read: {said}"


def account(results: Any, question: Question) -> Account:
    """Return the account of results for a question.

    Raises:
        UserError: A column is missing, two rows are one run, or what a source says contradicts.
    """
    q = question
    source = as_source(results)
    frame = parse_column(source.frame, q.parse) if q.parse else source.frame
    columns = [q.by] if isinstance(q.by, str) else list(q.by)
    named = [*columns, q.metric, *(c for c in (q.seed, q.within, q.step) if c is not None)]
    for name in named:
        if name not in frame.columns:
            raise UserError(f"no column {name!r}{near(name, frame.columns)}")
        if name in source.twice:
            raise UserError(f"two columns are named {name!r}; rename one of them")
    if twice := [name for name, count in Counter(named).items() if count > 1]:
        raise UserError(
            f"column {twice[0]!r} is named twice; each of --by, --metric, --seed, --within and "
            "--step needs a column of its own"
        )
    notes = list(source.notes)
    step = q.step or (source.step if source.step not in named else None)
    free = [c for c in frame.columns if c not in {*named, step, *source.twice}]
    seed = q.seed or _seed_column(frame, free, paired=q.paired)
    free = [c for c in free if c != seed]
    key = seed or next((c for c in RUNS if c in free), None)
    q = replace(q, seed=seed, higher_is_better=_direction(source.higher, q, notes))
    if step is not None and key is None:
        raise UserError("--step needs the column of the seed, which tells runs apart: --seed")
    raw = _labels(frame, [*columns, *([q.within] if q.within else [])], notes)
    variants = [
        ", ".join(own) if None not in own else None
        for own in zip(*raw[: len(columns)], strict=True)
    ]
    tables = raw[-1] if q.within else [""] * len(frame)
    keys = _seeds(frame[key].to_list(), notes) if key else list(map(str, range(len(frame))))
    whole = [None not in own for own in zip(variants, tables, keys, strict=True)]
    if not any(whole):
        raise UserError(f"no row has a value of {' and '.join(columns)}")
    states = _states(frame, free, q.finished)
    why = [
        state or ("" if full else "without a variant, seed or table")
        for state, full in zip(states, whole, strict=True)
    ]
    values = numbers(frame[q.metric].to_list(), q.metric, why)
    if step is None and key is None:
        _check_history(frame, free, variants, why)
    if step is None:
        steps: list[float | None] = [None] * len(frame)
    else:
        usable = [w or ("" if v is not None else "-") for w, v in zip(why, values, strict=True)]
        steps = numbers(frame[step].to_list(), step, usable)
    rows = pl.DataFrame(
        {
            "table": tables, "variant": variants, "seed": keys if key else [None] * len(frame),
            "step": steps, "value": values, "state": states, "why": why,
        },
        {"table": pl.String, "variant": pl.String, "seed": pl.String, "step": pl.Float64,
         "value": pl.Float64, "state": pl.String, "why": pl.String},
    )  # fmt: skip
    names = frame[RUN].to_list() if RUN in free and key != RUN else None
    hint = next((c for c in free if re.fullmatch(STEPS, c, re.IGNORECASE)), "COLUMN")
    runs = _runs(rows, keys, step, (f"{key}", hint), names, notes)
    return Account(rows.with_columns(_reasons(rows, runs, q.metric)), runs, q, notes)


def _runs(
    rows: pl.DataFrame, keys: Sequence[str | None], step: str | None, words: tuple[str, str],
    names: Sequence[Any] | None, notes: list[str],
) -> pl.DataFrame:  # fmt: skip
    """Return the runs, each with the row that counts."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    table, variant, value, steps, why = (
        rows[name].to_list() for name in ("table", "variant", "value", "step", "why")
    )
    for i, seed in enumerate(keys):
        if why[i] != DELETED and None not in (table[i], variant[i], seed):
            groups.setdefault((table[i], variant[i], seed), []).append(i)  # type: ignore[arg-type]
    (key, hint), chosen = words, list[int]()
    equal, ends = [], []
    for (_, own, seed), members in groups.items():
        known = [i for i in members if not why[i] and value[i] is not None]
        shown = f"variant {own!r}, {key} {seed}"
        if step is None and len(known) > 1:
            raise UserError(
                f"two rows have {shown}; --step {hint} keeps the last row of each run, "
                "--within COLUMN compares each value of a column by itself, and more --by tell "
                "variants apart"
            )
        if step is not None and any(steps[i] is None for i in known):
            raise UserError(f"row {known[0] + 1} has no {step}; fill it, or leave out --step")
        if names and len(own_names := list(dict.fromkeys(names[i] for i in known))) > 1:
            raise UserError(f"two runs have {shown}: {own_names[0]!r} and {own_names[1]!r}")
        chosen.append(max(known, key=lambda i: (steps[i] or 0, i)) if known else members[-1])
        if known and step is not None:
            last = steps[chosen[-1]]
            ends.append((last, shown))
            if len({value[i] for i in known if steps[i] == last}) > 1:
                equal.append(shown)
    if equal:
        notes.append(f"several values at the last {step}; the last row counts: {_some(equal)}")
    latest = max((last for last, _ in ends), default=0)
    if early := [f"{shown} (at {last:g})" for last, shown in ends if last < latest]:
        notes.append(f"ended before {step} {latest:g}, and their last value counts: {_some(early)}")
    return pl.DataFrame(
        {
            "table": [own[0] for own in groups], "variant": [own[1] for own in groups],
            "seed": [own[2] for own in groups],
            "value": [None if why[i] else value[i] for i in chosen], "row": chosen,
        },
        {"table": pl.String, "variant": pl.String, "seed": pl.String, "value": pl.Float64,
         "row": pl.Int64},
    )  # fmt: skip


def _reasons(rows: pl.DataFrame, runs: pl.DataFrame, metric: str) -> pl.Series:
    """Return why each row does not count; `counted` or `diverged` if it does."""
    chosen, has_steps = set(runs["row"]), rows["step"].is_not_null().any()
    result = []
    for i, (value, why) in enumerate(rows.select("value", "why").iter_rows()):
        if why:
            result.append(why)
        elif has_steps and i not in chosen:
            result.append(OTHER)
        elif value is None:
            result.append(f"without a value of {metric}")
        else:
            result.append(COUNTED if math.isfinite(value) else DIVERGED)
    return pl.Series("why", result, pl.String)


def parse_column(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Add the named groups of a regular expression over the names of runs.

    Raises:
        UserError: There is no such column, no named group, or nothing matches.
    """
    column = next((c for c in NAMES if c in frame.columns), None)
    if column is None:
        raise UserError(f"no column {RUN!r}{near(RUN, frame.columns)}")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--parse {pattern!r} is no regular expression: {error}") from error
    if not compiled.groupindex:
        raise UserError(f"--parse {pattern!r} has no named group, such as (?P<seed>\\d+)")
    found = [compiled.search(str(name)) for name in frame[column]]
    if not any(found):
        raise UserError(f"--parse {pattern!r} matches no {column}; the first: {frame[column][0]!r}")
    groups = {name: [m and m[name] for m in found] for name in compiled.groupindex}
    return frame.with_columns(pl.Series(name, own, pl.String) for name, own in groups.items())


def numbers(values: Iterable[Any], name: str, why: Sequence[str]) -> list[float | None]:
    """Return a column as numbers: None if a cell is empty, or its row has a reason.

    Raises:
        UserError: A cell is text.
    """
    result: list[float | None] = []
    for i, (value, reason) in enumerate(zip(values, why, strict=True)):
        text = value.strip() if isinstance(value, str) else value
        if text is None or text == "" or reason:
            result.append(None)
            continue
        try:
            result.append(number(text))
        except ValueError:
            raise UserError(
                f"row {i + 1}: {name} is {text!r}, not a number up to {LARGEST:g}; leave the "
                "cell of a run without a result empty"
            ) from None
    return result


def _label(value: Any) -> str | None:
    """Return the text of a cell; blanks around it, and in which form letters are, do not count."""
    text = unicodedata.normalize("NFC", str(value)).replace("\u200b", "").replace("\ufeff", "")
    return None if value is None else " ".join(text.split()) or None


def _labels(
    frame: pl.DataFrame, columns: Sequence[str], notes: list[str]
) -> list[list[str | None]]:
    result = []
    for name in columns:
        own = frame[name].to_list()
        result.append([_label(value) for value in own])
        _say_merged(own, result[-1], f"{name}: differ by blanks only, and are one", notes)
        known: dict[float | str, str] = {}
        for label in dict.fromkeys(filter(None, result[-1])):
            try:
                plain = float(label)
            except ValueError:
                plain = label.casefold()
            if plain in known:
                notes.append(f"{name}: {known[plain]!r} and {label!r} are two; are they one?")
            known[plain] = label
    return result


def _seeds(values: Sequence[Any], notes: list[str]) -> list[str | None]:
    """Return seeds as texts; 1, 1.0 and 01 are one seed."""
    result = []
    for value in values:
        label = _label(value)
        if label and re.fullmatch(r"[+-]?\d+", label):
            label = str(int(label)) if len(label) < 4000 else label
        elif label:
            try:
                exact = float(label)
                label = str(int(exact)) if exact.is_integer() and abs(exact) < 2**53 else label
            except ValueError:
                pass
        result.append(label)
    _say_merged(values, result, "seeds written in several ways are one", notes)
    return result


def _say_merged(
    values: Sequence[Any], labels: Sequence[str | None], text: str, notes: list[str]
) -> None:
    ways: dict[str, dict[str, None]] = {}
    for value, label in zip(values, labels, strict=True):
        if label is not None:
            ways.setdefault(label, {})[str(value)] = None
    if several := [" and ".join(map(repr, own)) for own in ways.values() if len(own) > 1]:
        notes.append(f"{text}: {_some(several)}")


def _seed_column(frame: pl.DataFrame, free: Sequence[str], *, paired: bool | None) -> str | None:
    """Return the column that looks like the seed."""
    if "seed" in free:
        return "seed"
    found = [c for c in free if re.fullmatch(SEEDS, c, re.IGNORECASE)]
    found = [c for c in found if frame[c].n_unique() > 1]
    if len(found) > 1 and paired is not False:
        raise UserError(f"which is the seed: {' or '.join(found)}? Give --seed COLUMN")
    return found[0] if len(found) == 1 else None


def _check_history(
    frame: pl.DataFrame, free: Sequence[str], variants: Sequence[Any], why: Sequence[str]
) -> None:
    """Refuse rows that are steps of runs, in a table where nothing tells runs apart."""
    for name in free:
        if not re.fullmatch(STEPS, name, re.IGNORECASE):
            continue
        steps: dict[Any, set[float]] = {}
        for value, variant, reason in zip(frame[name].to_list(), variants, why, strict=True):
            try:
                steps.setdefault(variant, set()).update([] if reason else [number(value)])
            except ValueError:
                continue
        for own in map(sorted, steps.values()):
            strides = {round(b - a, 9) for a, b in itertools.pairwise(own)}
            if len(strides) == 1 and own[0] in (0, 1, *strides):
                raise UserError(
                    f"the rows of {name} {own[0]:g}, {own[1]:g}, ... would count as runs; give "
                    f"--step {name} with --seed COLUMN, or leave that column out"
                )


def _direction(higher: dict[str, bool | None], q: Question, notes: list[str]) -> bool:
    """Return whether higher is better, as the source says."""
    if q.metric not in higher or (higher[q.metric] is False and not q.higher_is_better):
        return q.higher_is_better
    stored = higher[q.metric]
    if stored is None and not q.higher_is_better:
        raise UserError(f"the studies of this file do not all have one direction of {q.metric}; "
                        "judge each study by itself")  # fmt: skip
    if stored is False:
        raise UserError(f"--higher-is-better contradicts the study, which minimises {q.metric}")
    if stored:
        notes.append(f"the study maximises {q.metric}")
    return True


def _states(frame: pl.DataFrame, free: Sequence[str], finished: Sequence[str]) -> list[str]:
    """Return why the state of a row excludes it; "" if it counts."""
    result = [""] * len(frame)
    for name in free:
        good = next((v for k, v in FLAGS.items() if re.fullmatch(k, name, re.IGNORECASE)), None)
        own = [_label(value) for value in frame[name].to_list()]
        if name == STATE:
            result = [reason or state or "" for reason, state in zip(result, own, strict=True)]
            continue
        if good is None or not any(own):
            continue
        words = {word.lower() for word in finished} if good is FINISHED else set()
        gone = bool(re.search("lifecycle_stage|deleted|trashed", name, re.IGNORECASE))
        for i, state in enumerate(own):
            plain = (state or "").lower()
            known = {plain, plain.rpartition(".")[2]} & (good | words)
            if not result[i] and not known and (state or good is FINISHED):
                result[i] = DELETED if gone else f"not finished ({name} {state or ''!r})"
    if all(result) and DELETED not in result:
        kinds = _some(list(dict.fromkeys(result)))
        raise UserError(f"no row has finished: {kinds}; --finished STATE makes a state count")
    return result


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; {more} more" if more > 0 else "")
