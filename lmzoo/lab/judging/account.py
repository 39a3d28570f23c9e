"""Account for every row of results: which run it is, and why it does not count.

A row counts, or has one reason of those in docs/how/judge.md. A run that diverged (NaN, infinite,
or with that state) counts as such and is in no mean. Nothing is left out of a judgement anywhere
else, so the numbers of the reasons add up to the rows read.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

import polars as pl

from lmzoo.base import arguments
from lmzoo.base.errors import UserError, near
from lmzoo.lab.analysis.render import account_line
from lmzoo.lab.judging.directions import GOALS, OPTIONS, better, direction_of, stated
from lmzoo.lab.judging.histories import (
    IDENTITY,
    ROWS,
    VALUE,
    continue_runs,
    picked_rows,
)  # fmt: skip
from lmzoo.lab.judging.searches import (
    SEED_NAME,
    confirming,
    differing,
    settings_of,
    without_tuning,
)  # fmt: skip
from lmzoo.lab.judging.sources import as_source
from lmzoo.lab.judging.states import (
    DELETED,
    DIVERGED,
    MEANS,
    NOTHING,
    PARENTS,
    is_state,
    may_be_state,
    states,
)  # fmt: skip
from lmzoo.lab.judging.texts import (
    KNOWN_NAMES,
    NULL,
    NUMBER,
    RUN,
    SAME,
    SHOWN,
    STEPS,
    Source,
    mapped,
    number,
    plain,
    some,
)  # fmt: skip
from lmzoo.lab.judging.trackers import LAST_STEP, RUN_ID
from lmzoo.lab.store.records import LARGEST

COUNTED = "counted"
OTHER = "other rows of runs"
NO_PAIR = "without a pair"
END = r"((summary(Metrics)?|global|train(er|ing)|last|final|current)[./_])*_?(step|epoch|iteration)"
"""A column that says where a run ended."""
ENVIRONMENT = "environment."
"""Columns that `lmzoo.tune` reports: what may change a number."""
RUNS = KNOWN_NAMES["runs"]
NAMES = KNOWN_NAMES["names"]
PARENT_COLUMNS = KNOWN_NAMES["parents"]
FORMS = KNOWN_NAMES["not_numbers"]
"""What a cell that is no number looks like -> how to write it; the last one fits any."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to compare; the fields are the arguments of `judge`."""

    by: str | Sequence[str]
    metric: str
    seed: str | None = None
    reference: str | None = None
    margin: float = 0.0
    higher_is_better: bool | None = None
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

    def needed(self, head: pl.DataFrame) -> list[str]:
        """Return the columns that an account of a history needs, by its first rows."""
        named = {*_named(self)}
        has_seed = self.seed or any(map(SEED_NAME.fullmatch, head.columns))
        is_stated = any(re.fullmatch(GOALS, name) for name in head.columns)
        if self.step is None or not has_seed or is_stated or not named <= {*head.columns}:
            return head.columns
        known = re.compile(
            f"{SEED_NAME.pattern}|{'|'.join((*NAMES, *PARENT_COLUMNS))}|{ENVIRONMENT}.*",
            re.IGNORECASE,
        )
        return [
            name
            for name in head.columns
            if name in named or known.fullmatch(name) or may_be_state(head[name])
        ]


Question.__init__ = arguments.called(Question.__init__, "judge")  # type: ignore[method-assign]


class Account(NamedTuple):
    """All rows of a source, and its runs."""

    rows: pl.DataFrame
    """row, why; one row per row read."""
    runs: pl.DataFrame
    """row, variant, key, value; the value of a run that is missing is null."""
    question: Question
    """With the seed and the direction that were found."""
    notes: list[str]
    unread: int = 0
    """Other rows of runs that are left out of `rows`, because the table is large."""

    def counts(self) -> dict[str, int]:
        """Return the number of rows read, then that of each reason."""
        found = dict(self.rows["why"].value_counts().rows())
        if self.unread:
            found[OTHER] = found.get(OTHER, 0) + self.unread
        reasons = sorted(found, key=lambda why: (why != COUNTED, why != DIVERGED, why))
        whole = len(self.rows) + self.unread
        name = "rows read"
        if whole == 1:
            name = "row read"
        return {name: whole, **{why: found[why] for why in reasons}}

    def line(self) -> str:
        """Return the counts in a line."""
        return account_line(self.counts())


def account(results: Any, question: Question) -> Account:
    """Return the account of results for a question.

    A `UserError` says that a column is missing, or what can be read in two ways.
    """
    source = as_source(results, question)
    if source.frame.is_empty():
        raise UserError("the results have no rows; give one for each run")
    notes = list(source.notes)
    if question.parse:
        source.frame = parse_column(source.frame, question.parse)
    q, key, facts = _completed(question, source)
    frame = source.frame
    rows = _rows(frame, q, key, [c for c in facts if c not in source.metrics], notes)
    higher = _direction(source, frame, q, notes)
    q = replace(q, higher_is_better=higher)
    settings = settings_of(frame, _named(q))
    rows, said = without_tuning(frame, rows, settings, confirming(results, q))
    notes += said
    free = [c for c in frame.columns if c not in {*_named(q), *source.twice}]
    if q.step is None and key is None:
        _check_history(frame, [c for c in free if c in facts], rows)
        if repeated := len(frame) - frame.n_unique():
            notes.append(f"{repeated} rows repeat another one in each cell; each counts as a run")
    at = q.step
    if at is None:
        at = _last_steps(frame, q, facts)
    steps = pl.lit(0.0)
    if at is not None:
        usable = rows.select(own=(pl.col("why") == "") & VALUE.is_not_null())["own"]
        steps = numbers(frame[at], usable, notes).alias("step")
        if not q.step:
            steps = steps.fill_null(0.0)
    rows = rows.with_columns(step=steps)
    if q.step is not None:
        rows = continue_runs(rows, notes, with_seeds=q.seed is not None)
    ends = str(at).replace(q.metric + LAST_STEP, "step")
    picked = picked_rows(rows, frame.select(free), q, (key or "row", ends), notes)
    runs = rows.filter(pl.col("run").is_not_null()).group_by("run").last().sort("run")
    runs = pl.concat([picked.select(*ROWS), runs.select(*ROWS)]).unique("run", maintain_order=True)
    runs = runs.sort("run")
    if q.seed is None:
        each = "row counts as a run"
        if key:
            each = f"{key} counts by itself"
        notes += _unnamed(frame, free, runs, each)
    notes += _said_of_runs(rows, picked, q, source)
    notes += differing(frame, runs, settings)
    notes += _environments(frame, picked)
    return _counted(rows, runs, q, notes)._replace(unread=source.unread)


def _counted(rows: pl.DataFrame, runs: pl.DataFrame, q: Question, notes: list[str]) -> Account:
    """Return the account of rows, of which those in `runs` count if they have a value."""
    no_value = pl.lit(f"without a value of {q.metric}")
    is_other = ~pl.col("row").is_in(runs["row"].implode())
    why = (
        pl.when(pl.col("why") != "").then("why")
        .when(is_other).then(pl.lit(OTHER))
        .when(VALUE.is_null()).then(no_value)
        .when(VALUE.is_finite()).then(pl.lit(COUNTED))
        .otherwise(pl.lit(DIVERGED))
    )  # fmt: skip
    counts = pl.col("why").is_in([COUNTED, DIVERGED])
    runs = runs.with_columns(why=why).with_columns(value=pl.when(counts).then(VALUE))
    columns = ("row", "variant", "key", "value")
    return Account(rows.select("row", why=why), runs.select(columns), q, notes)


def _named(q: Question) -> list[str]:
    """Return the columns that a question names; the best row may be that of the metric."""
    asked = [*q.columns, q.metric, q.seed, q.step]
    if q.best not in asked:
        asked.append(q.best)
    return [name for name in asked if name is not None]


def _completed(q: Question, source: Source) -> tuple[Question, str | None, list[str]]:
    """Return a question with its seed and steps, what tells runs apart, and columns of facts."""
    frame = source.frame
    named = _named_columns(frame, q, source)
    step = q.step
    if step is None and source.step not in named:
        step = source.step
    free = [c for c in frame.columns if c not in {*named, step, *source.twice}]
    key = seed = q.seed
    if seed is None:
        key = seed = _seed_column(frame, free, source, paired=q.paired)
    free = [c for c in free if c != seed]
    if key is None:
        key = next((c for c in RUNS if c in free or c in q.columns), None)
    if q.best is not None and step is None:
        raise UserError("--best needs the steps of runs; give --step COLUMN")
    if step is not None and key is None:
        advice = ""
        if RUN in frame.columns:
            advice = f"; --by {RUN} makes each run a variant"
        raise UserError(
            f"the steps of {step} need a column that tells the runs of a variant apart: --seed, "
            f"or --parse of their names{advice}"
        )
    facts = [c for c in free if c not in source.settings]
    return replace(q, seed=seed, step=step), key, facts


def _named_columns(frame: pl.DataFrame, q: Question, source: Source) -> list[str]:
    """Return the columns that a question names; each is there, once, and named once."""
    if not q.columns:
        raise UserError("by names no column; give the ones that say which variant was trained")
    named = _named(q)
    read = [c for c in source.twice if is_state(c) or (not q.seed and SEED_NAME.fullmatch(c))]
    for name in dict.fromkeys((*named, *read)):
        if name not in frame.columns:
            known_names = [column for column in frame.columns if "\0" not in column]
            raise UserError(f"no column {name!r}{near(name, known_names)}")
        if name in source.twice:
            raise UserError(f"two columns are named {name!r}; rename one of them")
        if name in (q.metric, q.step) and name in source.unclear:
            raise UserError(source.unclear[name])
        if named.count(name) > 1:
            raise UserError(
                f"column {name!r} is named twice; each of --by, --metric, --seed and --step "
                "needs a column of its own"
            )
    return named


def _rows(
    frame: pl.DataFrame, q: Question, key: str | None, facts: Sequence[str], notes: list[str]
) -> pl.DataFrame:
    """Return the rows with the run, the value and the reason of each, "" if it may count."""
    row = pl.Series("row", range(len(frame)), pl.Int64)
    cells = {name: _labels(frame[name], notes) for name in q.columns}
    variant = pl.DataFrame([*cells.values()]).select(pl.concat_str(pl.all(), separator=", "))
    keys = row.cast(pl.String)
    if key is not None:
        keys = cells[key] = _seeds(frame[key], notes)
    named = next((c for c in (RUN, RUN_ID) if c in frame.columns and c != key), None)
    if named:
        names = frame[named].cast(pl.String)
    else:
        names = pl.lit(None, pl.String)
    lacking = [
        pl.when(own.is_null()).then(pl.lit(f"without a value of {name}"))
        for name, own in cells.items()
    ]
    rows = pl.DataFrame({"row": row, "variant": variant.to_series()}).with_columns(
        key=keys, name=names, state=states(frame, q.seed, facts, q.finished, notes)
    )
    state = pl.col("state")
    is_diverged = state == DIVERGED
    rows = rows.with_columns(
        why=pl.when(_parents(frame, q.metric)).then(pl.lit(PARENTS))
        .when((state != "") & ~is_diverged).then(state)
        .otherwise(pl.coalesce(*lacking, pl.lit("")))
    )  # fmt: skip
    is_whole = ~pl.any_horizontal(pl.col(IDENTITY).is_null())
    if not rows.select(is_whole.any()).item():
        needed = dict.fromkeys(filter(None, (*q.columns, key)))
        raise UserError(f"no row has a value of {' and '.join(needed)}")
    # A deleted run, a mean and a parent are no runs, so nothing is missing in their place.
    is_run = is_whole & ~pl.col("why").is_in([DELETED, MEANS, PARENTS])
    usable = rows["why"] == ""
    values = numbers(frame[q.metric], usable, notes)
    best = values
    if q.best:
        best = numbers(frame[q.best], usable, notes)
    return rows.with_columns(
        run=pl.when(is_run).then(pl.col("row").min().over(IDENTITY)),
        value=pl.when(is_diverged).then(math.inf).otherwise(values),
        best=best,
    ).drop("state")


def _parents(frame: pl.DataFrame, metric: str) -> pl.Series:
    """Return which rows are runs that others, which have the metric, name as their parent."""
    known = [name for name in PARENT_COLUMNS if name in frame.columns]
    if not known or RUN_ID not in frame.columns:
        return pl.repeat(value=False, n=len(frame), eager=True)
    parents = frame.filter(frame[metric].is_not_null())[known[0]].drop_nulls()
    return frame[RUN_ID].is_in(parents.implode())


def _last_steps(frame: pl.DataFrame, q: Question, facts: Sequence[str]) -> str | None:
    """Return the column that says where runs ended; None if there is none."""
    ends = [q.metric + LAST_STEP, *(c for c in facts if re.fullmatch(END, c, re.IGNORECASE))]
    for name in (c for c in ends if c in facts):
        if all(re.fullmatch(NUMBER, text or "") for text in plain(frame[name].unique())):
            return name
    return None


def _said_of_runs(
    rows: pl.DataFrame, picked: pl.DataFrame, q: Question, source: Source
) -> Iterator[str]:
    """Yield what looks wrong in the runs that count, and in those that are left out."""
    known = picked.filter(VALUE.is_finite())
    by_variant = known.group_by("variant", maintain_order=True)
    variants = by_variant.agg(runs=pl.len(), values=VALUE.n_unique())
    same = variants.filter((pl.col("runs") > 1) & (pl.col("values") == 1))["variant"]
    if len(same):
        yield f"{', '.join(map(repr, dict.fromkeys(same)))}: {SAME}"
    keys = known["key"].unique(maintain_order=True)
    is_number = keys.str.contains(r"^[+-]?\d+$")
    others = keys.filter(~is_number).to_list()
    if q.seed and others and is_number.any():
        yield f"{q.seed}: not a number, as others are, but counted: {some(others)}"
    if q.seed and len(keys) == len(known) > len(variants) > 1:
        yield f"{q.seed} is another one in each run, so it pairs none"
    word = "seed" if q.seed else "row"
    is_loss = better(q.metric) is False and not q.higher_is_better
    if is_loss and len(known) and (known["value"] < 0).all():
        yield f"{q.metric} is negative in each run; of a negated loss, a higher one is better"
    of_epochs = re.sub("_step$", "_epoch", q.metric)
    if of_epochs != q.metric and of_epochs in source.frame.columns:
        yield f"{q.metric} is of one batch, {of_epochs} of all; which do you mean?"
    left = rows.filter(pl.col("variant").is_null()).select("name", "key").unique()
    lost = [f"{name}, {word} {key}" if name else f"{word} {key}" for name, key in left.rows()]
    if lost:
        yield f"left out, as {' or '.join(q.columns)} is empty: {some(sorted(lost))}"
    judged = dict(known.select("name", "value").rows())
    texts = list[str]()
    for run, file, row in source.others:
        with contextlib.suppress(KeyError, ValueError):  # without the metric, or a text
            other = number(row[q.metric])
            if other != judged[run]:
                texts.append(f"{file} has {other:.4g}, {judged[run]:.4g} counts ({run})")
    if texts:
        yield f"a file that is not read says otherwise: {some(texts)}"


def _environments(frame: pl.DataFrame, picked: pl.DataFrame) -> Iterator[str]:
    """Yield in which environments the runs that count were trained, if there are several."""
    own = frame[picked["row"]].with_columns(variant=picked["variant"])
    for name in frame.columns:
        if not name.startswith(ENVIRONMENT):
            continue
        groups = own.drop_nulls(name).group_by(name, maintain_order=True)
        found = groups.agg(runs=pl.len(), variants=pl.col("variant").unique(maintain_order=True))
        said = [f"{n} runs with {v} ({', '.join(who)})" for v, n, who in found.rows()]
        if len(said) > 1:
            yield f"{name.removeprefix(ENVIRONMENT)} differs: {'; '.join(said)}"


def parse_column(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Add the named groups of a regular expression over the names of runs; else a `UserError`.

    Without a column of names, those of the first column of texts that it matches are read.
    """
    columns = [name for name in NAMES if name in frame.columns][:1]
    if not columns:
        columns = [name for name in frame.columns if frame[name].dtype == pl.String]
    if not columns:
        raise UserError("--parse reads the names of runs; the results have no column of texts")
    try:
        groups = [frame[name].cast(pl.String).str.extract_groups(pattern) for name in columns]
    except pl.exceptions.ComputeError as error:
        reason = str(error).splitlines()[-1]
        raise UserError(f"--parse {pattern!r} is no regular expression: {reason}") from error
    parts = [own.struct.unnest() for own in groups]
    names = [name for name in parts[0].columns if not name.isdecimal()]
    if not names:
        raise UserError(f"--parse {pattern!r} has no named group, such as (?P<seed>\\d+)")
    matched = [own.select(names) for own in parts]
    found = [own for own in matched if any(count < len(own) for count in own.null_count().row(0))]
    if not found:
        first = frame[columns[0]][0]
        raise UserError(f"--parse {pattern!r} matches no {columns[0]}; the first: {first!r}")
    for name in names:
        if name in frame.columns:
            raise UserError(
                f"--parse makes a column {name!r}, which is there; name its group otherwise"
            )
    return frame.with_columns(found[0])


def numbers(values: pl.Series, usable: pl.Series, notes: list[str]) -> pl.Series:
    """Return a column as numbers, null where empty or not usable; a `UserError` for text."""
    is_text = values.dtype == pl.String
    given = values
    if is_text:
        given = values.str.strip_chars()
        given = given.set(given.is_in(["", NULL]), None)
    read = pl.Series(values.name, [None], pl.Float64).new_from_index(0, len(values))
    if is_text or values.dtype.is_numeric():
        read = given.cast(pl.Float64, strict=False)
    is_plain = read.is_nan() | (read.abs() <= LARGEST)
    # The few others are read one by one: 1e999, Infinity, a Decimal, a text, which is refused.
    odd = given.is_not_null() & usable & ~is_plain.fill_null(value=False)
    places = odd.arg_true()
    found = list[float]()
    for place in places:
        try:
            found.append(number(given[place]))
        except ValueError:
            text = str(given[place])
            advice = next(own for form, own in FORMS.items() if re.search(form, text))
            raise UserError(
                f"row {place + 1}: {values.name} is {text[:60]!r}, not a number up to "
                f"{LARGEST:g}; {advice}"
            ) from None
    # A row that does not count may hold any text.
    read = read.scatter(places, found).set(~usable, None)
    large = given.filter(read.abs() > 2**53)
    count = sum(bool(re.fullmatch(r"[+-]?\d+", str(cell))) for cell in large)
    if count:
        notes.append(f"{values.name}: {count} integers above 2^53 are rounded to 16 digits")
    return read


def _labels(values: pl.Series, notes: list[str]) -> pl.Series:
    """Return the labels of variants; say which are nearly the same."""
    labels = mapped(values, plain)
    _say_merged(values, labels, f"{values.name}: differ by blanks only, and are one", notes)
    known: dict[float | str, str] = {}
    for label in labels.unique(maintain_order=True).drop_nulls():
        if "${" in label:
            raise UserError(f"{values.name} is {label!r}, whose value is not in its file; write it")
        digits = 12
        if "." in label:  # 0.1 and 0.10000000149011612, which is 0.1 in single precision
            digits = 7
        try:
            same = float(f"{float(label):.{digits}g}")
        except ValueError:
            same = re.sub(r" \(\w+\)$", "", label.casefold())  # True, and 'True' as a text
        if same in known:
            notes.append(f"{values.name}: {known[same]!r} and {label!r} are two; are they one?")
        known[same] = label
    return labels


def _seeds(values: pl.Series, notes: list[str]) -> pl.Series:
    """Return seeds as texts; 1, 1.0 and 01 are one seed."""
    labels = mapped(values, lambda own: [_seed(text) for text in plain(own)])
    _say_merged(values, labels, "seeds written in several ways are one", notes)
    return labels


def _seed(label: str | None) -> str | None:
    if label is None or label.lower() in NOTHING:
        return None
    # A spreadsheet writes 1e3 for the seed 1000. A longer exponent would take long.
    if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE]\+?\d{1,2})?", label):
        exact = Decimal(label)
        if exact == exact.to_integral_value():
            return str(int(exact))
    return label


def _say_merged(values: pl.Series, labels: pl.Series, text: str, notes: list[str]) -> None:
    """Say which cells, written in several ways, are one label."""
    ways = pl.DataFrame({"label": labels, "cell": values.cast(pl.String)})
    ways = ways.drop_nulls("label").unique(maintain_order=True)
    several = ways.group_by("label", maintain_order=True).agg("cell")
    several = several.filter(pl.col("cell").list.len() > 1)["cell"]
    if len(several):
        notes.append(f"{text}: {some([' and '.join(map(repr, own)) for own in several])}")


def _seed_column(
    frame: pl.DataFrame, free: Sequence[str], source: Source, *, paired: bool | None
) -> str | None:
    """Return the only column that may be the seed; one of a file comes before one of a path."""
    found = [c for c in free if SEED_NAME.fullmatch(c) and not _has_fractions(frame[c])]
    of_files = [c for c in found if c not in source.paths]
    if of_files:
        found = of_files
    varied = [c for c in found if frame[c].drop_nulls().n_unique() > 1]
    if "seed" in found:
        own = mapped(frame["seed"], plain)
        varied = ["seed", *(c for c in varied if not mapped(frame[c], plain).equals(own))]
    # Without pairs a seed is only a name, so that either one would do.
    if len(varied) > 1 and paired is not False:
        raise UserError(f"which is the seed: {' or '.join(varied)}? Give --seed COLUMN")
    return varied[0] if len(varied) == 1 else None


def _has_fractions(values: pl.Series) -> bool:
    """Return whether a number of a column is not whole, as in a share of a variance."""
    read = values.cast(pl.Float64, strict=False)
    return bool((read.filter(read.is_finite()) % 1 > 0).any())


def _check_history(frame: pl.DataFrame, free: Sequence[str], rows: pl.DataFrame) -> None:
    """Refuse rows that are steps of runs, in a table where nothing tells runs apart."""
    for name in (c for c in free if re.fullmatch(STEPS, c, re.IGNORECASE)):
        at = frame[name].cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        steps = rows.with_columns(at=at).filter(pl.col("why") == "").drop_nulls("at")
        by_variant = steps.group_by("variant", maintain_order=True)
        ladders = by_variant.agg(pl.col("at").unique().sort())["at"].to_list()
        # A column with one value a variant, such as a number of epochs, orders no rows.
        if min(map(len, ladders), default=0) > 1:
            first, second, *_ = ladders[0]
            raise UserError(
                f"the rows of {name} {first:g}, {second:g}, ... would count as runs; give "
                f"--step {name} with --seed COLUMN, or --seed {name}, or leave {name} out"
            )


def _unnamed(frame: pl.DataFrame, free: Sequence[str], runs: pl.DataFrame, each: str) -> list[str]:
    """Return a note that names the columns whose values variants share: seeds, other factors."""
    found = []
    for name in (c for c in free if not is_state(c)):
        # What is measured is another number in each run; a seed or a factor is shared.
        owners = _numbers_of(frame[name], runs, "variant", "cell")
        shared = owners["variant"] > 1
        is_number = all(re.fullmatch(NUMBER, text) for text in owners["cell"])
        if len(shared) > 1 and (shared.all() if is_number else shared.any()):
            found.append(name)
    ways = "a seed (--seed), a step (--step) or a factor (--by)"
    return [f"each {each}; is {' or '.join(found[:SHOWN])} {ways}?"] if found else []


def _numbers_of(values: pl.Series, runs: pl.DataFrame, counted: str, by: str) -> pl.DataFrame:
    """Return how many different cells of a column each variant has, or variants each cell."""
    cells = runs.select("variant", cell=mapped(values.gather(runs["row"]), plain))
    return cells.drop_nulls("cell").group_by(by).agg(pl.col(counted).n_unique())


def _direction(source: Source, frame: pl.DataFrame, q: Question, notes: list[str]) -> bool:
    """Return whether higher is better: as asked for, as the source says, or as the name says."""
    known = stated(frame) | source.higher
    asked = q.higher_is_better
    stored = known.get(q.metric)
    if stored is None and q.metric in known and asked is None:
        raise UserError(
            f"the studies of this file do not all have one direction of {q.metric}; judge each "
            "study by itself"
        )
    if stored is not None:
        verb = "maximises" if stored else "minimises"
        if asked not in (None, stored):
            raise UserError(f"{OPTIONS[not stored]} contradicts the study, which {verb} {q.metric}")
        notes.append(f"the study {verb} {q.metric}")
    chosen = stored if asked is None else asked
    if chosen is None:
        chosen = direction_of(q.metric)
    word = f"{OPTIONS[chosen]} is given"
    if asked is None:
        word = f"{OPTIONS[not chosen]} is not given"
    if better(q.metric) is (not chosen):
        notes.append(f"{word} for {q.metric}; is that right?")
    return chosen
