"""Account for every row of results: which run it is, and why it does not count.

A row counts, or has one reason of those in docs/how/judge.md. A run that diverged (NaN, infinite,
or with that state) counts as such and is in no mean. Nothing is left out of a judgement anywhere
else, so the numbers of the reasons add up to the rows read.
"""

import contextlib
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import polars as pl

from lmzoo.base import arguments
from lmzoo.base.errors import UserError, near
from lmzoo.lab.judging.directions import OPTIONS, better, direction_of, stated
from lmzoo.lab.judging.histories import Read, continue_runs, counted_reads, leave_gaps
from lmzoo.lab.judging.sources import as_source
from lmzoo.lab.judging.states import (
    ANY,
    DELETED,
    DIVERGED,
    FLAGS,
    MEANS,
    NOTHING,
    PARENTS,
    is_named,
    states,
)  # fmt: skip
from lmzoo.lab.judging.texts import (
    NULL,
    NUMBER,
    RUN,
    SAME,
    SHOWN,
    STEPS,
    W_AND_B,
    Source,
    number,
    plain,
    some,
)  # fmt: skip
from lmzoo.lab.judging.trackers import LAST_STEP, PARENT, RUN_ID
from lmzoo.lab.store.records import LARGEST

COUNTED, OTHER, NO_PAIR = "counted", "other rows of runs", "without a pair"
SEEDS = r"(.*[./ _-])?(seeds?|random_state)"
END = r"((summary(Metrics)?|global|train(er|ing)|last|final|current)[./_])*_?(step|epoch|iteration)"
"""A column that says where a run ended."""
RUNS = (RUN_ID, RUN, "trial_id", "run_name", "Run")
"""Columns that tell runs apart where there is no seed."""
NAMES = (RUN, "Name", "run_name", "name", "displayName", RUN_ID, "Run", "trial_id")
"""Columns of names of runs, for `--parse`."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to compare; the fields are the arguments of `judge`."""

    by: str | Sequence[str]
    metric: str
    seed: str | None = None
    reference: str | None = None
    margin: float = 0.0
    higher_is_better: bool | None = None
    within: str | None = None
    successive: bool = False
    paired: bool | None = None
    step: str | None = None
    parse: str | None = None
    finished: Sequence[str] = ()
    best: str | None = None

    def __post_init__(self) -> None:
        arguments.text("metric", self.metric)
        if not isinstance(self.by, str):
            arguments.texts("by", self.by)

    @property
    def columns(self) -> Sequence[str]:
        """The columns of `by`."""
        return [self.by] if isinstance(self.by, str) else self.by


class Account(NamedTuple):
    """All rows of a source, and its runs."""

    rows: pl.DataFrame
    """row, why; one row per row read."""
    runs: pl.DataFrame
    """row, table, variant, key, value; the value of a run that is missing is null."""
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


def account(results: Any, question: Question, *, needs_direction: bool = True) -> Account:
    """Return the account of results for a question.

    A `UserError` says that a column is missing, or what can be read in two ways.
    """
    q, source = question, as_source(results)
    frame, notes = source.frame, list(source.notes)
    frame = parse_column(frame, q.parse) if q.parse else frame
    named = _named_columns(frame, q, source)
    step = q.step or (source.step if source.step not in named else None)
    free = [c for c in frame.columns if c not in {*named, step, *source.twice}]
    seed = q.seed or _seed_column(frame, free, source, paired=q.paired)
    free = [c for c in free if c != seed]
    key = seed or next((c for c in RUNS if c in free), None)
    q = replace(q, seed=seed, step=step)
    if q.best is not None and step is None:
        raise UserError("--best needs the steps of runs; give --step COLUMN")
    if step is not None and key is None:
        raise UserError(
            f"the steps of {step} need a column that tells the runs of a variant apart: --seed, "
            f"or --parse of their names; --by {RUN} makes each run a variant"
        )
    facts = [c for c in free if c not in source.settings]
    reads = _read_rows(frame, q, key, [c for c in facts if c not in source.metrics], notes)
    higher = _direction(source, frame, q, notes, is_needed=needs_direction or q.best is not None)
    q = replace(q, higher_is_better=higher)
    if step is None and key is None:
        _check_history(frame, free, reads)
        if repeated := len(frame) - frame.n_unique():
            notes.append(f"{repeated} rows repeat another one in each cell; each counts as a run")
    at = step or _last_steps(frame, q, facts)
    if at is not None:
        usable = [read.is_known for read in reads]
        for read, own in zip(reads, numbers(frame[at], usable, notes), strict=True):
            read.step = own
    runs: dict[tuple[Any, ...], list[Read]] = defaultdict(list)
    for read in reads:
        if None not in read.run and read.why not in (DELETED, MEANS, PARENTS):
            runs[read.run].append(read)
    if step is not None:
        notes += leave_gaps(runs)
        notes += continue_runs(runs, with_seeds=seed is not None)
    hint = _step_hint(frame, free, runs)
    ends = str(at).replace(q.metric + LAST_STEP, "step")
    picked = counted_reads(runs, q, (key or "row", ends, hint), notes)
    if seed is None:
        each = f"{key} counts by itself" if key else "row counts as a run"
        notes += _unnamed(frame, free, picked, each)
    notes += _said_of_runs(reads, picked, q, source)
    kept = {id(read) for read in picked}
    for read in reads:
        if step is not None and not read.why and id(read) not in kept:
            read.why = OTHER
        elif not read.why and read.value is None:
            read.why = f"without a value of {q.metric}"
        elif not read.why:
            read.why = COUNTED if math.isfinite(read.value) else DIVERGED  # type: ignore[arg-type]
        if read.why not in (COUNTED, DIVERGED):
            read.value = None
    rows = pl.DataFrame({"row": range(len(reads)), "why": [read.why for read in reads]})
    columns = ("row", "table", "variant", "key", "value")
    found = [[getattr(read, name) for name in columns] for read in picked]
    kinds = (pl.Int64, pl.String, pl.String, pl.String, pl.Float64)
    schema: Any = dict(zip(columns, kinds, strict=True))
    return Account(rows, pl.DataFrame(found, schema, orient="row"), q, notes)


def _named_columns(frame: pl.DataFrame, q: Question, source: Source) -> list[str]:
    """Return the columns that a question names; each is there, once, and named once."""
    if not q.columns:
        raise UserError("by names no column; give the ones that say which variant was trained")
    named = [*q.columns, q.metric, *(c for c in (q.seed, q.within, q.step) if c is not None)]
    known = [*(flag[0] for flag in FLAGS if flag[0] != ANY), *([] if q.seed else [SEEDS])]
    read = [name for name in source.twice if any(is_named(name, own) for own in known)]
    best = [q.best] if q.best is not None and q.best not in named else []
    for name in (*named, *best, *(name for name in read if name not in named)):
        if name not in frame.columns:
            texts = (f"{c} is {v!r:.60}" for c in frame.columns if c in W_AND_B for v in frame[c])
            unread = next((f"; {own}, which is not read" for own in texts if "{" in own), "")
            known_names = [column for column in frame.columns if "\0" not in column]
            raise UserError(f"no column {name!r}{near(name, known_names)}{unread}")
        if name in source.twice:
            raise UserError(f"two columns are named {name!r}; rename one of them")
        if name in (q.metric, q.step) and name in source.unclear:
            raise UserError(source.unclear[name])
        if named.count(name) > 1:
            raise UserError(
                f"column {name!r} is named twice; each of --by, --metric, --seed, --within and "
                "--step needs a column of its own"
            )
    return [*named, *best]


def _read_rows(
    frame: pl.DataFrame, q: Question, key: str | None, facts: Sequence[str], notes: list[str]
) -> list[Read]:
    """Return the rows with the run, the value and the reason of each, "" if it may count."""
    labels = {name: _labels(frame[name], notes) for name in (*q.columns, *filter(None, [q.within]))}
    keys = _seeds(frame[key], notes) if key else [str(i) for i in range(len(frame))]
    why = states(frame, q.seed, facts, q.finished, notes)
    tables = labels[q.within] if q.within else [""] * len(frame)
    of_parents = _parents(frame, q.metric)
    named = next((c for c in (RUN, RUN_ID) if c in frame.columns and c != key), None)
    names = frame[named] if named else [None] * len(frame)
    cells = [*labels.items(), *([(key, keys)] if key else [])]
    reads = []
    for i in range(len(frame)):
        parts = [labels[c][i] for c in q.columns]
        variant = ", ".join(filter(None, parts)) if None not in parts else None
        lacking = next((f"without a value of {c}" for c, own in cells if own[i] is None), "")
        reason = "" if why[i] == DIVERGED else why[i]
        reason = PARENTS if i in of_parents else reason or lacking
        name = None if names[i] is None else str(names[i])
        reads.append(Read(i, tables[i], variant, keys[i], name, reason))
    if all(None in read.run for read in reads):
        needed = dict.fromkeys(filter(None, (*q.columns, q.within, key)))
        raise UserError(f"no row has a value of {' and '.join(needed)}")
    values = numbers(frame[q.metric], [not read.why for read in reads], notes)
    best = numbers(frame[q.best], [not r.why for r in reads], notes) if q.best else values
    for read, value, of_best, reason in zip(reads, values, best, why, strict=True):
        read.value = math.inf if reason == DIVERGED else value
        read.best = of_best
    return reads


def _parents(frame: pl.DataFrame, metric: str) -> set[int]:
    """Return the rows of runs that others, which have the metric, name as their parent."""
    if not {RUN_ID, PARENT} <= {*frame.columns}:
        return set()
    parents = set(frame.filter(frame[metric].is_not_null())[PARENT].drop_nulls())
    return {i for i, own in enumerate(frame[RUN_ID]) if own in parents}


def _last_steps(frame: pl.DataFrame, q: Question, facts: Sequence[str]) -> str | None:
    """Return the column that says where runs ended; None if there is none."""
    ends = [q.metric + LAST_STEP, *(c for c in facts if re.fullmatch(END, c, re.IGNORECASE))]
    for name in (c for c in ends if c in facts):
        if all(re.fullmatch(NUMBER, text or "") for text in plain(frame[name])):
            return name
    return None


def _said_of_runs(
    reads: Sequence[Read], picked: Sequence[Read], q: Question, source: Source
) -> Iterator[str]:
    """Yield what looks wrong in the runs that count, and in those that are left out."""
    known = [read for read in picked if read.is_known and math.isfinite(read.value or 0)]
    values: dict[str, list[Any]] = defaultdict(list)
    for read in known:
        values[f"{read.table}\0{read.variant}"].append(read.value)
    same = [name.split("\0")[1] for name, own in values.items() if len(own) > 1 == len({*own})]
    if same:
        yield f"{', '.join(map(repr, dict.fromkeys(same)))}: {SAME}"
    if q.seed and len({read.key for read in known}) == len(known) > len(values) > 1:
        yield f"{q.seed} is another one in each run, so it pairs none"
    word = "seed" if q.seed else "row"
    left = [read for read in reads if read.variant is None]
    lost = {f"{r.name}, {word} {r.key}" if r.name else f"{word} {r.key}" for r in left}
    if lost:
        yield f"left out, as {' or '.join(q.columns)} is empty: {some(sorted(lost))}"
    judged = {read.name: read.value for read in known if read.value is not None}
    texts = list[str]()
    for run, file, row in source.others:
        with contextlib.suppress(KeyError, ValueError):  # without the metric, or a text
            other = number(row[q.metric])
            if other != judged[run]:
                texts.append(f"{file} has {other:.4g}, {judged[run]:.4g} counts ({run})")
    if texts:
        yield f"a file that is not read says otherwise: {some(texts)}"


def _step_hint(frame: pl.DataFrame, free: Sequence[str], runs: Mapping[Any, Sequence[Read]]) -> str:
    """Return the column that orders the rows of a run that has several, to name in an error."""
    known = ([read.row for read in own if read.is_known] for own in runs.values())
    rows = next((own for own in known if len(own) > 1), [])
    for name in (c for c in free if re.fullmatch(STEPS, c, re.IGNORECASE)):
        if 2 * frame[name][rows].drop_nulls().n_unique() > len(rows):
            return name
    return "COLUMN"


def parse_column(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Add the named groups of a regular expression over the names of runs; else a `UserError`."""
    column = next((c for c in NAMES if c in frame.columns), None)
    if column is None:
        raise UserError(f"--parse reads a column {', '.join(NAMES)}; rename the one of names")
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
    if twice := next((name for name in groups if name in frame.columns), None):
        raise UserError(
            f"--parse makes a column {twice!r}, which is there; name its group otherwise"
        )
    return frame.with_columns(pl.Series(name, own, pl.String) for name, own in groups.items())


def numbers(values: pl.Series, usable: Iterable[bool], notes: list[str]) -> list[float | None]:
    """Return a column as numbers, None where empty or not usable; a `UserError` for text."""
    result: list[float | None] = []
    large = 0
    for i, (value, use) in enumerate(zip(values, usable, strict=True)):
        text = value.strip() if isinstance(value, str) else value
        try:
            own = number(text) if use and text not in (None, "", NULL) else None
        except ValueError:
            raise UserError(
                f"row {i + 1}: {values.name} is {text!r:.60}, not a number up to {LARGEST:g}; "
                "write 1234.5, without a unit or a comma, and leave the cell of a run without a "
                "result empty"
            ) from None
        is_whole = own is not None and abs(own) > 2**53 and re.fullmatch(r"[+-]?\d+", str(text))
        large += is_whole is not None and is_whole is not False
        result.append(own)
    if large:
        notes.append(f"{values.name}: {large} integers above 2^53 are rounded to 16 digits")
    return result


def _labels(values: pl.Series, notes: list[str]) -> list[str | None]:
    labels = plain(values)
    _say_merged(values, labels, f"{values.name}: differ by blanks only, and are one", notes)
    known: dict[float | str, str] = {}
    for label in dict.fromkeys(filter(None, labels)):
        if "${" in label:
            raise UserError(f"{values.name} is {label!r}, whose value is not in its file; write it")
        try:
            same = float(f"{float(label):.12g}")
        except ValueError:
            same = label.casefold()
        if same in known:
            notes.append(f"{values.name}: {known[same]!r} and {label!r} are two; are they one?")
        known[same] = label
    return labels


def _seeds(values: pl.Series, notes: list[str]) -> list[str | None]:
    """Return seeds as texts; 1, 1.0 and 01 are one seed."""

    def seed(label: str | None) -> str | None:
        if label is None or label.lower() in NOTHING:
            return None
        if whole := re.fullmatch(r"([+-]?)0*(\d+?)(\.0*)?", label):
            return f"{whole[1].strip('+') if whole[2] != '0' else ''}{whole[2]}"
        with_exponent = re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d{1,2}", label)
        exact = float(label) if with_exponent else math.nan
        return str(int(exact)) if exact < 2**53 and exact.is_integer() else label

    labels = [seed(label) for label in plain(values)]
    _say_merged(values, labels, "seeds written in several ways are one", notes)
    return labels


def _say_merged(
    values: pl.Series, labels: Sequence[str | None], text: str, notes: list[str]
) -> None:
    ways: dict[str | None, dict[str, None]] = defaultdict(dict)
    for value, label in zip(values, labels, strict=True):
        ways[label][str(value)] = None
    ways.pop(None, None)
    if several := [" and ".join(map(repr, own)) for own in ways.values() if len(own) > 1]:
        notes.append(f"{text}: {some(several)}")


def _seed_column(
    frame: pl.DataFrame, free: Sequence[str], source: Source, *, paired: bool | None
) -> str | None:
    """Return the only column that may be the seed; one of a file comes before one of a path."""
    found = [c for c in free if re.fullmatch(SEEDS, c, re.IGNORECASE)]
    found = [c for c in found if c not in source.paths] or found
    varied = [c for c in found if frame[c].n_unique() > 1]
    if "seed" in found:
        own = plain(frame["seed"])
        varied = ["seed", *(c for c in varied if plain(frame[c]) != own)]
    if len(varied) > 1 and paired is not False:
        raise UserError(f"which is the seed: {' or '.join(varied)}? Give --seed COLUMN")
    return varied[0] if len(varied) == 1 else None


def _check_history(frame: pl.DataFrame, free: Sequence[str], reads: Sequence[Read]) -> None:
    """Refuse rows that are steps of runs, in a table where nothing tells runs apart."""
    for name in (c for c in free if re.fullmatch(STEPS, c, re.IGNORECASE)):
        orders: dict[str | None, list[float]] = defaultdict(list)
        for read, text in zip(reads, plain(frame[name]), strict=True):
            if not read.why and re.fullmatch(NUMBER, text or ""):
                orders[read.variant].append(float(text or 0))
        ladders = [sorted({*own}) for own in orders.values()]
        rises = ladders == [*orders.values()] and min(map(len, ladders), default=0) > 4
        is_shared = len(ladders) > 1 and all(own == ladders[0] for own in ladders)
        for own in ladders:
            strides = {round(b - a, 9) for a, b in itertools.pairwise(own)}
            from_start = len(strides) == 1 and own[0] in (0, 1, *strides)
            if from_start or rises or (is_shared and len(own) > 2):
                raise UserError(
                    f"the rows of {name} {own[0]:g}, {own[1]:g}, ... would count as runs; give "
                    f"--step {name} with --seed COLUMN, --within {name}, or --seed {name}"
                )


def _unnamed(
    frame: pl.DataFrame, free: Sequence[str], picked: Sequence[Read], each: str
) -> list[str]:
    """Return a note that names the columns whose values variants share: seeds, other factors."""
    found = []
    for name in free:
        owners: dict[str, set[str | None]] = defaultdict(set)
        texts = plain(frame[name])
        for read in picked:
            owners[texts[read.row] or ""].add(read.variant)
        owners.pop("", None)
        shared = [len(variants) > 1 for variants in owners.values()]
        is_number = all(re.fullmatch(NUMBER, text) for text in owners)
        is_factor = len(shared) > 1 and (all(shared) if is_number else any(shared))
        if is_factor and not any(is_named(name, flag[0]) for flag in FLAGS if flag[0] != ANY):
            found.append(name)
    ways = "a seed (--seed), a step (--step) or a factor (--by, --within)"
    return [f"each {each}; is {' or '.join(found[:SHOWN])} {ways}?"] if found else []


def _direction(
    source: Source, frame: pl.DataFrame, q: Question, notes: list[str], *, is_needed: bool
) -> bool | None:
    """Return whether higher is better: as asked for, as the source says, or as the name says."""
    known = stated(frame) | source.higher
    asked, stored = q.higher_is_better, known.get(q.metric)
    if stored is None and q.metric in known and asked is None:
        raise UserError(f"the studies of this file do not all have one direction of {q.metric}; "
                        "judge each study by itself")  # fmt: skip
    if stored is not None:
        verb = "maximises" if stored else "minimises"
        if asked not in (None, stored):
            raise UserError(f"{OPTIONS[not stored]} contradicts the study, which {verb} {q.metric}")
        notes.append(f"the study {verb} {q.metric}")
    chosen = stored if asked is None else asked
    if chosen is None:
        chosen = direction_of(q.metric) if is_needed else better(q.metric)
    for name in (q.metric, *(frame[q.within].unique(maintain_order=True) if q.within else ())):
        if chosen is not None and better(str(name)) is (not chosen):
            word = (
                f"{OPTIONS[not chosen]} is not given"
                if asked is None
                else f"{OPTIONS[chosen]} is given"
            )
            notes.append(f"{word} for {name}; is that right?")
    return chosen
