"""Account for every row of results: which run it is, and why it does not count.

A row counts, or has one reason of those in docs/how/judge.md. A run that diverged (NaN, infinite,
or with that state) counts as such and is in no mean. Nothing is left out of a judgement anywhere
else, so the numbers of the reasons add up to the rows read.
"""

import contextlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

import polars as pl
from polars import DataFrame, Float64, Int64, Series, String, col, lit, when

from lmzoo.base import arguments
from lmzoo.base.errors import UserError, near
from lmzoo.lab.analysis.render import account_line
from lmzoo.lab.judging.directions import GOALS, OPTIONS, better, direction_of, stated
from lmzoo.lab.judging.histories import (
    IDENTITY,
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
    all_match,
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
END = re.compile(
    r"((summary(Metrics)?|global|train(er|ing)|last|final|current)[./_])*_?(step|epoch|iteration)",
    re.IGNORECASE,
)
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

    def __post_init__(self):
        arguments.text("metric", self.metric)
        if not isinstance(self.by, str):
            arguments.texts("by", self.by)

    @property
    def columns(self) -> Sequence[str]:
        """The columns of `by`."""
        if isinstance(self.by, str):
            return [self.by]
        return self.by

    def needed(self, head: DataFrame) -> list[str]:
        """Return the columns that an account of a history needs, by its first rows."""
        columns = head.columns
        named = set(_named(self))
        has_seed = self.seed or any(map(SEED_NAME.fullmatch, columns))
        states_direction = any(map(GOALS.fullmatch, columns))
        # Where the seed, the steps or the direction must still be found, any column may tell it.
        if self.step is None or not has_seed or states_direction or not named.issubset(columns):
            return columns
        kinds = [SEED_NAME.pattern, f"{ENVIRONMENT}.*"]
        kinds += NAMES + PARENT_COLUMNS
        known = re.compile("|".join(kinds), re.IGNORECASE)
        # A state may stand in a column of any name.
        return [
            name
            for name in columns
            if name in named or known.fullmatch(name) or may_be_state(head[name])
        ]


# Its arguments are those of `judge`, so an error of the user names `judge`.
Question.__init__ = arguments.called(Question.__init__, "judge")  # type: ignore[method-assign]


class Account(NamedTuple):
    """All rows of a source, and its runs."""

    rows: DataFrame
    """row, why; one row per row read."""
    runs: DataFrame
    """row, variant, key, value; the value of a run that is missing is null."""
    question: Question
    """With the seed and the direction that were found."""
    notes: list[str]
    unread: int = 0
    """Other rows of runs that are left out of `rows`, because the table is large."""

    def counts(self) -> dict[str, int]:
        """Return the number of rows read, then that of each reason."""
        found = Counter(self.rows["why"])
        found[OTHER] += self.unread
        whole = found.total()
        name = "rows read"
        if whole == 1:
            name = "row read"
        counts = {name: whole}
        # What counts stands first.
        order = [COUNTED, DIVERGED] + sorted(found)
        for why in order:
            if found[why]:
                counts[why] = found[why]
        return counts

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
    frame = source.frame
    question, key, facts = _completed(question, source)
    # A metric of 0 and 1, such as a success, is no state.
    may_be_states = [c for c in facts if c not in source.metrics]
    rows = _rows(frame, question, key, may_be_states, notes)
    question = replace(question, higher_is_better=_direction(source, question, notes))
    settings = settings_of(frame, _named(question))
    # Before runs are counted: the spread of trials of a search is no noise of seeds.
    rows, said = without_tuning(frame, rows, settings, confirming(results, question))
    notes += said
    # Rows of epochs would count as runs.
    if question.step is None and key is None:
        _check_history(frame, facts, rows)
        repeated = len(frame) - frame.n_unique()
        if repeated:
            notes.append(f"{repeated} rows repeat another one in each cell; each counts as a run")
    rows, ends = _with_steps(frame, rows, question, facts, notes)
    free = _free_columns(question, source)
    words = (key or "row", ends)
    picked = picked_rows(rows, frame.select(free), question, words, notes)
    # A run without a value is there with its last row.
    others = rows.drop_nulls("run").group_by("run").last()
    both = pl.concat([picked.select(others.columns), others])
    runs = both.unique("run", keep="first").sort("run")
    if question.seed is None:
        each = "row counts as a run"
        if key:
            each = f"{key} counts by itself"
        notes += _unnamed(frame, free, runs, each)
    notes += _said_of_runs(rows, picked, question, source)
    notes += differing(frame, runs, settings)
    notes += _environments(frame, picked)
    return _counted(rows, runs, question, notes, source.unread)


def _with_steps(
    frame: DataFrame, rows: DataFrame, question: Question, facts: Sequence[str], notes: list[str]
) -> tuple[DataFrame, str]:
    """Return the rows with their steps, runs that go on as one, and what orders the rows."""
    at = question.step
    if at is None:
        at = _last_steps(frame, question, facts)
    if at is None:
        return rows.with_columns(step=0.0), "step"
    # A row that does not count may have no step.
    usable = (rows["why"] == "") & rows["value"].is_not_null()
    rows = rows.with_columns(step=numbers(frame[at], usable, notes))
    if question.step is None:
        rows = rows.with_columns(col("step").fill_null(0.0))
    else:
        # A run of Lightning may begin where another one of its variant and seed ends.
        rows = continue_runs(rows, notes, with_seeds=question.seed is not None)
    return rows, at.replace(question.metric + LAST_STEP, "step")


def _counted(
    rows: DataFrame, runs: DataFrame, question: Question, notes: list[str], unread: int
) -> Account:
    """Return the account of rows, of which those in `runs` count if they have a value."""
    no_value = lit(f"without a value of {question.metric}")
    is_other = ~col("row").is_in(runs["row"].implode())
    why = (
        when(col("why") != "").then("why")
        .when(is_other).then(lit(OTHER))
        .when(VALUE.is_null()).then(no_value)
        .when(VALUE.is_finite()).then(lit(COUNTED))
        .otherwise(lit(DIVERGED))
    )  # fmt: skip
    counts = col("why").is_in([COUNTED, DIVERGED])
    runs = runs.with_columns(why=why).with_columns(value=when(counts).then(VALUE))
    columns = ("row", "variant", "key", "value")
    return Account(rows.select("row", why=why), runs.select(columns), question, notes, unread)


def _named(question: Question) -> list[str]:
    """Return the columns that a question names; the best row may be that of the metric."""
    named = list(question.columns) + [question.metric, question.seed, question.step]
    if question.best not in named:
        named.append(question.best)
    return [name for name in named if name is not None]


def _free_columns(question: Question, source: Source) -> list[str]:
    """Return the columns that a question does not name, of those that are there once."""
    named = _named(question)
    return [c for c in source.frame.columns if c not in named and c not in source.twice]


def _completed(question: Question, source: Source) -> tuple[Question, str | None, list[str]]:
    """Return a question with its seed and steps, the column that tells runs apart, and facts.

    Facts are the columns that are neither named nor settings.
    """
    frame = source.frame
    named = _named_columns(frame, question, source)
    if question.step is None and source.step not in named:
        # A known program has one name for its column of steps.
        question = replace(question, step=source.step)
    if question.seed is None:
        seed = _seed_column(frame, _free_columns(question, source), source, paired=question.paired)
        question = replace(question, seed=seed)
    free = _free_columns(question, source)
    key = question.seed
    if key is None:
        # Without seeds, the names of runs still tell a run's rows from another run's.
        key = _first(RUNS, free + list(question.columns))
    if question.best is not None and question.step is None:
        raise UserError("--best needs the steps of runs; give --step COLUMN")
    if question.step is not None and key is None:
        advice = ""
        if RUN in frame.columns:
            advice = f"; --by {RUN} makes each run a variant"
        raise UserError(
            f"the steps of {question.step} need a column that tells the runs of a variant apart: "
            f"--seed, or --parse of their names{advice}"
        )
    facts = [c for c in free if c not in source.settings]
    return question, key, facts


def _named_columns(frame: DataFrame, question: Question, source: Source) -> list[str]:
    """Return the columns that a question names; each is there, once, and named once."""
    if not question.columns:
        raise UserError("by names no column; give the ones that say which variant was trained")
    named = _named(question)
    for name in named:
        if name not in frame.columns:
            known_names = [column for column in frame.columns if "\0" not in column]
            raise UserError(f"no column {name!r}{near(name, known_names)}")
        # Only a number that is judged must have one reading.
        if name in (question.metric, question.step) and name in source.unclear:
            raise UserError(source.unclear[name])
        if named.count(name) > 1:
            raise UserError(
                f"column {name!r} is named twice; each of --by, --metric, --seed and --step "
                "needs a column of its own"
            )
    for name in source.twice:
        # Two columns of one name matter only if one of them may be read.
        is_seed = SEED_NAME.fullmatch(name) is not None
        if name in named or is_state(name) or (is_seed and not question.seed):
            raise UserError(f"two columns are named {name!r}; rename one of them")
    return named


def _rows(
    frame: DataFrame, question: Question, key: str | None, facts: Sequence[str], notes: list[str]
) -> DataFrame:
    """Return the rows with the run, the value and the reason of each, "" if it may count."""
    row = Series("row", range(len(frame)), Int64)
    cells = {name: _labels(frame[name], notes) for name in question.columns}
    joined = pl.concat_str(pl.all(), separator=", ")
    variant = DataFrame(cells).select(joined).to_series()
    keys = row.cast(String)
    if key is not None:
        keys = _seeds(frame[key], notes)
        cells[key] = keys
    names = lit(None, String)
    for name in (RUN_ID, RUN):
        if name in frame.columns and name != key:
            names = frame[name].cast(String)
    lacking = [
        when(labels.is_null()).then(lit(f"without a value of {name}"))
        for name, labels in cells.items()
    ]
    rows = DataFrame({"row": row, "variant": variant, "key": keys})
    state = states(frame, question.seed, facts, question.finished, notes)
    is_diverged = state == DIVERGED
    has_reason = (state != "") & ~is_diverged
    is_parent = _parents(frame, question.metric)
    why = when(is_parent).then(lit(PARENTS)).when(has_reason).then(state)
    rows = rows.with_columns(name=names, why=why.otherwise(pl.coalesce(*lacking, lit(""))))
    if rows.drop_nulls(IDENTITY).is_empty():
        raise UserError(f"no row has a value of {' and '.join(cells)}")
    is_whole = pl.all_horizontal(col(IDENTITY).is_not_null())
    # A deleted run, a mean and a parent are no runs, so nothing is missing in their place.
    is_run = is_whole & ~col("why").is_in([DELETED, MEANS, PARENTS])
    first = pl.min("row").over(IDENTITY)
    usable = rows["why"] == ""
    values = numbers(frame[question.metric], usable, notes)
    best = values
    if question.best:
        best = numbers(frame[question.best], usable, notes)
    return rows.with_columns(
        run=when(is_run).then(first),
        value=when(is_diverged).then(math.inf).otherwise(values),
        best=best,
    )


def _first(names: Iterable[str], columns: Collection[str]) -> str | None:
    """Return the first of these names that a column has."""
    for name in names:
        if name in columns:
            return name
    return None


def _parents(frame: DataFrame, metric: str) -> Series:
    """Return which rows are runs that others, which have the metric, name as their parent."""
    # A parent has the mean or the best value of the runs that name it.
    parent = _first(PARENT_COLUMNS, frame.columns)
    if parent is None or RUN_ID not in frame.columns:
        return pl.repeat(value=False, n=len(frame), eager=True)
    children = frame.drop_nulls([metric, parent])
    return frame[RUN_ID].is_in(children[parent].implode())


def _last_steps(frame: DataFrame, question: Question, facts: Sequence[str]) -> str | None:
    """Return the column that says where runs ended; None if there is none."""
    ends = [question.metric + LAST_STEP]
    ends += filter(END.fullmatch, facts)
    for name in ends:
        if name not in facts:
            continue
        if all_match(NUMBER, plain(frame[name].unique())):
            return name
    return None


def _said_of_runs(
    rows: DataFrame, picked: DataFrame, question: Question, source: Source
) -> Iterator[str]:
    """Yield what looks wrong in the runs that count, and in those that are left out."""
    known = picked.filter(VALUE.is_finite())
    by_variant = known.group_by("variant", maintain_order=True)
    variants = by_variant.agg(runs=pl.len(), values=VALUE.n_unique())
    same = variants.filter(col("runs") > 1, values=1)
    if len(same):
        names = map(repr, same["variant"])
        # A script that fixes its seed gives this.
        yield f"{', '.join(names)}: {SAME}"
    word = "row"
    if question.seed:
        word = "seed"
        keys = known["key"].unique(maintain_order=True)
        is_number = keys.str.contains(r"^[+-]?\d+$")
        others = keys.filter(~is_number).to_list()
        if others and is_number.any():
            yield f"{question.seed}: not a number, as others are, but counted: {some(others)}"
        if len(keys) == len(known) > len(variants) > 1:
            yield f"{question.seed} is another one in each run, so it pairs none"
    metric = question.metric
    # scikit-learn and others log minus the loss.
    is_loss = better(metric) is False and not question.higher_is_better
    is_negative = (known["value"] < 0).all()
    if is_loss and len(known) and is_negative:
        yield f"{metric} is negative in each run; of a negated loss, a higher one is better"
    # Lightning logs `loss_step` of a batch and `loss_epoch`.
    of_epochs = re.sub("_step$", "_epoch", metric)
    if of_epochs != metric and of_epochs in source.frame.columns:
        yield f"{metric} is of one batch, {of_epochs} of all; which do you mean?"
    lost = set()
    left = rows.filter(col("variant").is_null())
    for name, key in left.select("name", "key").rows():
        text = f"{word} {key}"
        if name:
            text = f"{name}, {text}"
        lost.add(text)
    if lost:
        yield f"left out, as {' or '.join(question.columns)} is empty: {some(sorted(lost))}"
    values = dict(known.select("name", "value").rows())
    texts = []
    # A trainer may state its best value in another file than the history.
    for run, file, row in source.others:
        with contextlib.suppress(KeyError, ValueError):  # without the metric, or a text
            other = number(row[metric])
            own = values[run]
            if other != own:
                texts.append(f"{file} has {other:.4g}, {own:.4g} counts ({run})")
    if texts:
        yield f"a file that is not read says otherwise: {some(texts)}"


def _environments(frame: DataFrame, picked: DataFrame) -> Iterator[str]:
    """Yield in which environments the runs that count were trained, if there are several."""
    counted = frame[picked["row"]].with_columns(variant=picked["variant"])
    variants = col("variant").unique(maintain_order=True)
    for name in frame.columns:
        if not name.startswith(ENVIRONMENT):
            continue
        known = counted.drop_nulls(name)
        groups = known.group_by(name, maintain_order=True)
        found = groups.agg(runs=pl.len(), variants=variants)
        said = [
            f"{runs} runs with {value} ({', '.join(variants)})"
            for value, runs, variants in found.rows()
        ]
        # A difference between environments would be taken for one between variants.
        if len(said) > 1:
            yield f"{name.removeprefix(ENVIRONMENT)} differs: {'; '.join(said)}"


def parse_column(frame: DataFrame, pattern: str) -> DataFrame:
    """Add the named groups of a regular expression over the names of runs; else a `UserError`.

    Without a column of names, those of the first column of texts that it matches are read.
    """
    columns = frame.select(col(String)).columns
    named = _first(NAMES, frame.columns)
    if named:
        columns = [named]
    if not columns:
        raise UserError("--parse reads the names of runs; the results have no column of texts")
    try:
        groups = [frame[name].cast(String).str.extract_groups(pattern) for name in columns]
    except pl.exceptions.ComputeError as error:
        reason = str(error).splitlines()[-1]
        raise UserError(f"--parse {pattern!r} is no regular expression: {reason}") from error
    names = list(itertools.filterfalse(str.isdecimal, groups[0].struct.fields))
    if not names:
        raise UserError(f"--parse {pattern!r} has no named group, such as (?P<seed>\\d+)")
    for name in names:
        if name in frame.columns:
            raise UserError(
                f"--parse makes a column {name!r}, which is there; name its group otherwise"
            )
    for extracted in groups:
        matched = extracted.struct.unnest().select(names)
        if min(matched.null_count().row(0)) < len(frame):
            return frame.with_columns(matched)
    first = frame[columns[0]][0]
    raise UserError(f"--parse {pattern!r} matches no {columns[0]}; the first: {first!r}")


def numbers(values: Series, usable: Series, notes: list[str]) -> Series:
    """Return a column as numbers, null where empty or not usable; a `UserError` for text."""
    is_text = values.dtype == String
    given = values
    if is_text:
        given = values.str.strip_chars()
        given = given.set(given.is_in(["", NULL]), None)
    read = Series(values.name, [None], Float64).new_from_index(0, len(values))
    if is_text or values.dtype.is_numeric():
        read = given.cast(Float64, strict=False)
    is_plain = read.is_nan() | (read.abs() <= LARGEST)
    is_odd = ~is_plain.fill_null(value=False)
    # The few others are read one by one: 1e999, Infinity, a Decimal, a text, which is refused.
    odd = given.is_not_null() & usable & is_odd
    places = odd.arg_true()
    found = []
    for place in places:
        try:
            found.append(number(given[place]))
        except ValueError:
            text = str(given[place])
            form = next(form for form in FORMS if re.search(form, text))
            raise UserError(
                f"row {place + 1}: {values.name} is {text[:60]!r}, not a number up to "
                f"{LARGEST:g}; {FORMS[form]}"
            ) from None
    # A row that does not count may hold any text.
    read = read.scatter(places, found).set(~usable, None)
    # A float has 16 digits, so that two such numbers may become equal.
    large = given.filter(read.abs() > 2**53).cast(String)
    whole = large.str.contains(r"^[+-]?\d+$").sum()
    if whole:
        notes.append(f"{values.name}: {whole} integers above 2^53 are rounded to 16 digits")
    return read


def _labels(values: Series, notes: list[str]) -> Series:
    """Return the labels of variants; say which are nearly the same."""
    labels = mapped(values, plain)
    _say_merged(values, labels, f"{values.name}: differ by blanks only, and are one", notes)
    known: dict[float | str, str] = {}
    for label in labels.unique(maintain_order=True).drop_nulls():
        # A name of Hydra for a value that is elsewhere.
        if "${" in label:
            raise UserError(f"{values.name} is {label!r}, whose value is not in its file; write it")
        digits = 12
        if "." in label:  # 0.1 and 0.10000000149011612, which is 0.1 in single precision
            digits = 7
        try:
            form = float(f"{float(label):.{digits}g}")
        except ValueError:
            form = re.sub(r" \(\w+\)$", "", label.casefold())  # True, and 'True' as a text
        if form in known:
            notes.append(f"{values.name}: {known[form]!r} and {label!r} are two; are they one?")
        known[form] = label
    return labels


def _seeds(values: Series, notes: list[str]) -> Series:
    """Return seeds as texts; 1, 1.0 and 01 are one seed."""
    labels = mapped(values, lambda cells: list(map(_seed, plain(cells))))
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


def _say_merged(values: Series, labels: Series, text: str, notes: list[str]):
    """Say which cells, written in several ways, are one label."""
    ways = DataFrame({"label": labels, "cell": values.cast(String)})
    ways = ways.drop_nulls("label").unique(maintain_order=True)
    by_label = ways.group_by("label", maintain_order=True)
    texts = [
        " and ".join(map(repr, cells)) for cells in by_label.agg("cell")["cell"] if len(cells) > 1
    ]
    if texts:
        notes.append(f"{text}: {some(texts)}")


def _seed_column(
    frame: DataFrame, free: Sequence[str], source: Source, *, paired: bool | None
) -> str | None:
    """Return the only column that may be the seed; one of a file comes before one of a path."""
    candidates = [c for c in free if SEED_NAME.fullmatch(c) and not _has_fractions(frame[c])]
    # What stands in a file comes before what its path says.
    of_files = [c for c in candidates if c not in source.paths]
    if of_files:
        candidates = of_files
    varied = [c for c in candidates if frame[c].drop_nulls().n_unique() > 1]
    if "seed" in candidates:
        seeds = mapped(frame["seed"], plain)
        others = varied
        varied = ["seed"]
        for name in others:
            # A copy of the seeds is no other candidate.
            if not mapped(frame[name], plain).equals(seeds):
                varied.append(name)
    if len(varied) == 1:
        return varied[0]
    # Without pairs a seed is only a name, so that either one would do.
    if varied and paired is not False:
        raise UserError(f"which is the seed: {' or '.join(varied)}? Give --seed COLUMN")
    return None


def _has_fractions(values: Series) -> bool:
    """Return whether a number of a column is not whole, as in a share of a variance."""
    read = values.cast(Float64, strict=False)
    finite = read.filter(read.is_finite())
    return bool((finite % 1 > 0).any())


def _check_history(frame: DataFrame, facts: Sequence[str], rows: DataFrame):
    """Refuse rows that are steps of runs, in a table where nothing tells runs apart."""
    for name in facts:
        if not STEPS.fullmatch(name):
            continue
        texts = frame[name].cast(String).str.strip_chars()
        at = texts.cast(Float64, strict=False)
        usable = rows.with_columns(at=at).filter(why="")
        steps = usable.drop_nulls("at")
        by_variant = steps.group_by("variant", maintain_order=True)
        of_variants = by_variant.agg(col("at").unique().sort())
        ladders = of_variants["at"].to_list()
        # A column with one value a variant, such as a number of epochs, orders no rows.
        if min(map(len, ladders), default=0) > 1:
            first, second = ladders[0][:2]
            raise UserError(
                f"the rows of {name} {first:g}, {second:g}, ... would count as runs; give "
                f"--step {name} with --seed COLUMN, or --seed {name}, or leave {name} out"
            )


def _unnamed(frame: DataFrame, free: Sequence[str], runs: DataFrame, each: str) -> Iterator[str]:
    """Yield a note that names the columns whose values variants share: seeds, other factors."""
    found = []
    for name in free:
        # A state is shared by variants, too, and is no seed.
        if is_state(name):
            continue
        values = frame[name].gather(runs["row"])
        cells = runs.select("variant", cell=mapped(values, plain))
        by_cell = cells.drop_nulls("cell").group_by("cell")
        owners = by_cell.agg(pl.n_unique("variant"))
        # What is measured is another number in each run; a seed or a factor is shared.
        shared = owners["variant"] > 1
        is_shared = shared.any()
        if all_match(NUMBER, owners["cell"]):
            is_shared = shared.all()
        if len(shared) > 1 and is_shared:
            found.append(name)
    if found:
        ways = "a seed (--seed), a step (--step) or a factor (--by)"
        yield f"each {each}; is {' or '.join(found[:SHOWN])} {ways}?"


def _direction(source: Source, question: Question, notes: list[str]) -> bool:
    """Return whether higher is better: as asked for, as the source says, or as the name says."""
    known = stated(source.frame) | source.higher
    metric = question.metric
    asked = question.higher_is_better
    chosen = asked
    stored = known.get(metric)
    # Guessing would turn the verdicts of some of the studies.
    if stored is None and metric in known and asked is None:
        raise UserError(
            f"the studies of this file do not all have one direction of {metric}; judge "
            "each study by itself"
        )
    if stored is not None:
        verb = "minimises"
        if stored:
            verb = "maximises"
        if asked not in (None, stored):
            raise UserError(f"{OPTIONS[not stored]} contradicts the study, which {verb} {metric}")
        notes.append(f"the study {verb} {metric}")
        chosen = stored
    if chosen is None:
        chosen = direction_of(metric)
    word = f"{OPTIONS[chosen]} is given"
    if asked is None:
        word = f"{OPTIONS[not chosen]} is not given"
    # The option or the study counts before the name, but one of them may be a slip.
    if better(metric) is (not chosen):
        notes.append(f"{word} for {metric}; is that right?")
    return chosen
