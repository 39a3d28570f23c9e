"""Account for every row of results: which run it is, and why it does not count.

A row counts, or has one reason of those in docs/how/judge.md. A run that diverged (NaN, infinite,
or with that state) counts as such and is in no mean. Nothing is left out of a judgement anywhere
else, so the numbers of the reasons add up to the rows read.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import polars as pl

from lmzoo.base.errors import UserError, near
from lmzoo.lab.judging.sources import as_source
from lmzoo.lab.judging.texts import NUMBER, RUN, STATE, W_AND_B, Source, number
from lmzoo.lab.judging.trackers import LAST_STEP
from lmzoo.lab.store.records import LARGEST

FINISHED = {
    "finished", "finish", "complete", "completed", "done", "ended", "success", "succeeded",
    "successful", "terminated", "ok", "passed", "keep", "discard", "published",
}  # fmt: skip
"""States of runs whose results count: of W&B, MLflow, Optuna, Ray Tune, SLURM and others."""
COUNTED, DIVERGED, DELETED, MEANS = "counted", "diverged", "deleted", "means and other summaries"
UNFINISHED, OTHER, NO_PAIR = "not finished", "other rows of runs", "without a pair"
YES = {"true", "t", "yes", "y", "1", "1.0"}
NOTHING = {"none", "null", "nan", "na", "n/a", "<na>"}
NO = {"", "false", "f", "no", "n", "0", "0.0", *NOTHING}
WORDS, TRUTHS = ("|".join({*YES, *NO} - digits) for digits in ({"0", "1", "0.0", "1.0"}, set()))
ENDED_BADLY = (
    r"fail(ed)?|failure|crash(ed)?|error(ed)?|killed|aborted|cancelled|canceled|interrupted|"
    r"preempted|running|pending|queued|scheduled|timed?[ _]?out|oom|out[ _]of[ _]memory|"
    r"unfinished|diverged"
)
ANY, TEXTS, NONE = ".*", r"[01](\.0)?|[^\d.+-].*", "(?!)"
VERB = "((is|was|has|did)_)?"
FLAGS = (
    (r"((run|trial|job)_?)?(state|status)", FINISHED, UNFINISHED, ANY),
    (ANY, FINISHED, UNFINISHED, "|".join((*FINISHED, ENDED_BADLY))),
    (r"lifecycle_stage", {"", "active"}, DELETED, ANY),
    (r"(is_)?(deleted|trashed)(_at)?", NO, DELETED, ANY),
    (r"(exit(_?(code|status))?|(ret(urn)?|status)_?code|rc)", {"0", "0.0", "0:0"}, UNFINISHED, ANY),
    (VERB + r"(archived|crash(ed)?|failed|killed|aborted)", NO, UNFINISHED, ANY),
    (VERB + r"(cancelled|canceled|interrupted|preempted|excluded)", NO, UNFINISHED, ANY),
    (VERB + r"(running|pending|pruned|incomplete|unfinished)", NO, UNFINISHED, TRUTHS),
    (VERB + r"(finished|completed?|done|ended|terminated)", YES, UNFINISHED, TRUTHS),
    (VERB + r"(succe(ss|eded|ssful)|ok|passed)", YES, UNFINISHED, WORDS),
    (VERB + r"(error|exception|traceback|oom|timed_?out)(_message)?", NO, UNFINISHED, TEXTS),
    (r"((is_|has_|did_)?diverged?|(is|has)_nan)", NO, DIVERGED, TEXTS),
    (VERB + r"(valid|converged|(early_)?stopped)", YES, UNFINISHED, NONE),
)
"""Columns that say whether a run counts: their names, the values with which it does, what it is
with any other, and what all values of such a column look like. Other words or truth values in such
a column are said. A column of any name does if all its values are states, and one of them is that
of a finished run."""
SEEDS = r"(.*[./ _-])?(seeds?|random_state)"
END = r"((summary(Metrics)?|global|train(er|ing)|last|final|current)[./_])*_?(step|epoch|iteration)"
"""A column that says where a run ended."""
STEPS = r"(?!.*best)(.*[./ _-])?((time)?step|epoch|iter(ation)?|episode|frame|round|generation)s?"
RUNS = (RUN, "run_id", "trial_id", "run_name", "Run")
"""Columns that tell runs apart where there is no seed."""
NAMES = (RUN, "Name", "run_name", "name", "displayName", "run_id", "Run", "trial_id")
"""Columns of names of runs, for `--parse`."""
HIGHER = (
    r"(.*[^a-z])?(acc|accuracy|au(ro|pr)?c|f1|m?ap|m?iou|dice|precision|recall|bleu|rouge|chrf|"
    r"psnr|ssim|r2|mrr|ndcg|mcc|rewards?|returns?|scores?|elo)([^a-z].*)?"
)
LOWER = (
    r"(.*[^a-z])?(loss|nll|err(or)?|perplexity|ppl|bpb|bpc|rmse|mse|mae|[wc]er|fid|brier|regret)"
    r"([^a-z].*)?"
)
"""Metrics of which a higher value is better, and a lower one."""
SHOWN = 3
"""Examples in a line."""
KEY = ("table", "variant", "key")
SUMMARIES = {"mean", "avg", "average", "median", "std", "stdev", "sd", "sem", "mean±std"}
"""Words in a column of numbers, such as that of the seed, which say that a row is no run."""
IS_WHOLE = pl.all_horizontal(pl.col(KEY).is_not_null())


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
    """row, table, variant, key, seed, step, value, why; one row per row read."""
    runs: pl.DataFrame
    """The rows of runs that are not deleted; the value of a run that is missing is null."""
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

    A `UserError` says that a column is missing, or what can be read in two ways.
    """
    q, source = question, as_source(results)
    frame, notes = source.frame, list(source.notes)
    frame = parse_column(frame, q.parse) if q.parse else frame
    named = _named_columns(frame, q, source.twice)
    step = q.step or (source.step if source.step not in named else None)
    free = [c for c in frame.columns if c not in {*named, step, *source.twice}]
    seed = q.seed or _seed_column(frame, free, paired=q.paired)
    free = [c for c in free if c != seed]
    key = seed or next((c for c in RUNS if c in free), None)
    q = replace(q, seed=seed, higher_is_better=_direction(source, frame, q, notes))
    if step is not None and key is None:
        raise UserError(
            f"the steps of {step} need a column that tells the runs of a variant apart: --seed, "
            f"or --parse of their names; --by {RUN} makes each run a variant"
        )
    rows = _read_rows(frame, q, key, free, notes)
    if step is None and key is None:
        _check_history(frame, free, rows)
        if repeated := len(frame) - frame.n_unique():
            notes.append(f"{repeated} rows repeat another one in each cell; each counts as a run")
    ends = [q.metric + LAST_STEP, *(c for c in free if re.fullmatch(END, c, re.IGNORECASE))]
    ends = [c for c in ends if c in free and _plain(frame[c]).str.contains(f"^{NUMBER}$").all()]
    at = step or next(iter(ends), None)
    none = pl.repeat(None, len(frame), dtype=pl.Float64, eager=True)
    known = (rows["why"] == "") & rows["value"].is_not_null()
    rows = rows.with_columns(
        step=none if at is None else numbers(frame[at], known),
        known=known,
        name=frame[RUN].cast(pl.String) if RUN in free and key != RUN else pl.lit(None, pl.String),
    )
    if step is not None:
        rows = _without_gaps(rows, rows.filter(known, IS_WHOLE), notes)
    hint = _step_hint(frame, free, rows.filter("known", IS_WHOLE))
    at = str(at).replace(q.metric + LAST_STEP, "step")
    is_run = ~pl.col("why").is_in([DELETED, MEANS])
    runs = _runs(rows.filter(IS_WHOLE, is_run), step, at, key, hint, notes)
    if seed is None:
        each = f"{key} counts by itself" if key else "row counts as a run"
        notes += _unnamed(frame[runs["row"].to_list()], free, runs["variant"], each)
    is_other = pl.lit(step is not None) & ~pl.col("row").is_in(runs["row"].implode())
    why = pl.when(pl.col("why") != "").then("why").when(is_other).then(pl.lit(OTHER))
    why = why.when(pl.col("value").is_null()).then(pl.lit(f"without a value of {q.metric}"))
    why = why.when(pl.col("value").is_finite()).then(pl.lit(COUNTED)).otherwise(pl.lit(DIVERGED))
    return Account(rows.with_columns(why=why), runs, q, notes)


def _named_columns(frame: pl.DataFrame, q: Question, twice: Collection[str]) -> list[str]:
    """Return the columns that a question names; each is there, once, and named once."""
    columns = [q.by] if isinstance(q.by, str) else list(q.by)
    if not columns:
        raise UserError("by names no column; give the ones that say which variant was trained")
    named = [*columns, q.metric, *(c for c in (q.seed, q.within, q.step) if c is not None)]
    known = [*(flag[0] for flag in FLAGS if flag[0] != ANY), *([] if q.seed else [SEEDS])]
    read = [name for name in twice if any(_is_named(name, own) for own in known)]
    for name in (*named, *(name for name in read if name not in named)):
        if name not in frame.columns:
            texts = (f"{c} is {v!r:.60}" for c in frame.columns if c in W_AND_B for v in frame[c])
            unread = next((f"; {own}, which is not read" for own in texts if "{" in own), "")
            raise UserError(f"no column {name!r}{near(name, frame.columns)}{unread}")
        if name in twice:
            raise UserError(f"two columns are named {name!r}; rename one of them")
        if named.count(name) > 1:
            raise UserError(
                f"column {name!r} is named twice; each of --by, --metric, --seed, --within and "
                "--step needs a column of its own"
            )
    return named


def _read_rows(
    frame: pl.DataFrame, q: Question, key: str | None, free: Sequence[str], notes: list[str]
) -> pl.DataFrame:
    """Return row, table, variant, key, seed, value, diverged and why, "" if the row may count."""
    columns = [q.by] if isinstance(q.by, str) else list(q.by)
    labels = {name: _labels(frame[name], notes) for name in (*columns, *filter(None, [q.within]))}
    rows = pl.DataFrame(
        {
            "table": labels[q.within] if q.within else pl.repeat("", len(frame), eager=True),
            "variant": pl.select(pl.concat_str(*(labels[c] for c in columns), separator=", ")),
            "key": _seeds(frame[key], notes) if key else pl.Series(range(len(frame))),
            "state": _states(frame, [*free, *filter(None, [q.seed])], q.finished, notes),
        },
        {"table": pl.String, "variant": pl.String, "key": pl.String, "state": pl.String},
    ).with_row_index("row")
    if rows.filter(IS_WHOLE).is_empty():
        needed = dict.fromkeys(filter(None, (*columns, q.within, key)))
        raise UserError(f"no row has a value of {' and '.join(needed)}")
    cells = [*labels.items(), *([(key, rows["key"])] if key else [])]
    empty = (pl.when(c.is_null()).then(pl.lit(f"without a value of {name}")) for name, c in cells)
    lacking = pl.coalesce(*empty, pl.lit(""))
    diverged = pl.col("state") == DIVERGED
    rows = rows.with_columns(
        seed=pl.col("key") if key else pl.lit(None),
        why=pl.when((pl.col("state") != "") & ~diverged).then("state").otherwise(lacking),
        diverged=diverged,
    ).drop("state")
    values = numbers(frame[q.metric], rows["why"] == "")
    value = pl.when("diverged").then(math.inf).otherwise("value")
    return rows.with_columns(values.alias("value")).with_columns(value=value)


def _step_hint(frame: pl.DataFrame, free: Sequence[str], known: pl.DataFrame) -> str:
    """Return the column that orders the rows of a run that has several, to name in an error."""
    twice = known.filter(pl.struct(KEY).is_duplicated())
    twice = frame[twice.join(twice.head(1), on=KEY, how="semi")["row"].to_list()]
    hints = [c for c in free if re.fullmatch(STEPS, c, re.IGNORECASE)]
    return next((c for c in hints if 2 * twice[c].drop_nulls().n_unique() > len(twice)), "COLUMN")


def _without_gaps(rows: pl.DataFrame, known: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Take NaN for an empty cell where each run has it, or has numbers after it."""
    step, is_nan = pl.col("step"), pl.col("value").is_nan()
    number = step.filter(pl.col("value").is_finite()).max()
    all_runs = known.group_by(KEY).agg(first=step.filter(is_nan).min(), last=number)
    runs = all_runs.drop_nulls()
    in_all = len(runs) == all_runs["last"].count()
    if runs.is_empty() or not (in_all or (runs["first"] < runs["last"]).all()):
        return rows
    notes.append("NaN is read as an empty cell: each run has it, or has numbers after it")
    gaps = known.filter(is_nan).join(runs, on=KEY, how="semi")["row"]
    is_gap = pl.col("row").is_in(gaps.implode())
    value = pl.when(~is_gap).then("value")
    return rows.with_columns(known=pl.col("known") & ~is_gap, value=value)


def _runs(
    rows: pl.DataFrame, step: str | None, at: str, key: str | None, hint: str, notes: list[str]
) -> pl.DataFrame:
    """Return the row of each run that counts: the last one with a value; `at` names its step."""

    def shown(row: dict[str, Any]) -> str:
        return f"variant {row['variant']!r}, {key} {row['key']}"

    known, has_step = rows.filter("known"), pl.col("step").is_finite().fill_null(value=False)
    names = known.group_by(KEY, maintain_order=True).agg(pl.col("name").unique(maintain_order=True))
    for row in names.filter(pl.col("name").list.len() > 1).to_dicts():
        raise UserError(f"two runs have {shown(row)}: {row['name'][0]!r} and {row['name'][1]!r}")
    several = known.filter(pl.struct(KEY).is_duplicated())
    is_one = (several.group_by(KEY).agg(pl.col("step").n_unique())["step"] == 1).all()
    for row in several.to_dicts() if step is None or is_one else ():
        raise UserError(
            f"two rows have {shown(row)}; --step {hint} keeps the last row of each run, "
            "--within COLUMN compares each value of a column by itself, more --by or another "
            "--seed tell runs apart; else keep one row of each run"
        )
    for row in known.filter(~has_step).to_dicts() if step is not None else ():
        raise UserError(f"row {row['row'] + 1} has no {step}; fill it, or leave out --step")
    back, end = pl.col("step").last().over(KEY), pl.col("step").max().over(KEY)
    known = known.with_columns(again=(back < end) & ((pl.col("step") == back).sum().over(KEY) > 1))
    last = known.filter(pl.col("step") == pl.col("step").max().over(KEY))
    equal = last.group_by(KEY, maintain_order=True).agg(pl.col("value").n_unique())
    if texts := [shown(row) for row in equal.filter(pl.col("value") > 1).to_dicts()]:
        notes.append(f"several values at the last {step}; the last row counts: {_some(texts)}")
    last = last.unique(KEY, maintain_order=True)
    again = [shown(row) for row in last.filter("again").to_dicts()]
    if again and step is not None:
        notes.append(f"{step} begins again, and its largest value counts: {_some(again)}")
    latest = pl.col("step").max().over("table")
    early = last.with_columns(latest=latest).filter(pl.col("step") < pl.col("latest"))
    for (latest,), own in early.group_by("latest", maintain_order=True):
        texts = [f"{shown(row)} (at {row['step']:g})" for row in own.to_dicts()]
        notes.append(f"ended before {at} {latest:g}, and their last value counts: {_some(texts)}")
    chosen = pl.col("row").sort_by("known", "step", "row").last().over(KEY)
    first = rows.with_columns(first=pl.col("row").min().over(KEY), chosen=chosen)
    runs = first.filter(pl.col("row") == pl.col("chosen")).sort("first")
    return runs.with_columns(value=pl.when("known").then("value"))


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
    return frame.with_columns(pl.Series(name, own, pl.String) for name, own in groups.items())


def numbers(values: pl.Series, usable: Iterable[bool]) -> pl.Series:
    """Return a column as numbers, null where empty or not usable; a `UserError` for text."""
    result: list[float | None] = []
    for i, (value, use) in enumerate(zip(values, usable, strict=True)):
        text = value.strip() if isinstance(value, str) else value
        try:
            result.append(number(text) if use and text not in (None, "") else None)
        except ValueError:
            raise UserError(
                f"row {i + 1}: {values.name} is {text!r:.60}, not a number up to {LARGEST:g}; "
                "write 1234.5, without a unit or a comma, and leave the cell of a run without a "
                "result empty"
            ) from None
    return pl.Series(result, dtype=pl.Float64)


def _plain(values: pl.Series) -> pl.Series:
    """Return the texts of cells; blanks around them and forms of Unicode do not count."""
    texts = pl.Series([None if v is None else str(v) for v in values], dtype=pl.String)
    texts = texts.str.normalize("NFC").str.replace_all("[\u200b\ufeff]", "")
    texts = texts.str.replace_all(r"\s+", " ").str.strip_chars()
    return texts.replace({"": None})


def _labels(values: pl.Series, notes: list[str]) -> pl.Series:
    labels = _plain(values)
    _say_merged(values, labels, f"{values.name}: differ by blanks only, and are one", notes)
    known: dict[float | str, str] = {}
    for label in labels.drop_nulls().unique(maintain_order=True):
        try:
            plain = float(label)
        except ValueError:
            plain = label.casefold()
        if plain in known:
            notes.append(f"{values.name}: {known[plain]!r} and {label!r} are two; are they one?")
        known[plain] = label
    return labels


def _seeds(values: pl.Series, notes: list[str]) -> pl.Series:
    """Return seeds as texts; 1, 1.0 and 01 are one seed."""

    def seed(label: str) -> str:
        if whole := re.fullmatch(r"([+-]?)0*(\d+?)(\.0*)?", label):
            return f"{whole[1].strip('+') if whole[2] != '0' else ''}{whole[2]}"
        with_exponent = re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d{1,2}", label)
        exact = float(label) if with_exponent else math.nan
        return str(int(exact)) if exact < 2**53 and exact.is_integer() else label

    labels = _plain(values)
    labels = labels.set(labels.str.to_lowercase().is_in([*NOTHING]), None)
    merged = {label: seed(label) for label in labels.drop_nulls().unique()}
    labels = pl.Series([label and merged[label] for label in labels], dtype=pl.String)
    _say_merged(values, labels, "seeds written in several ways are one", notes)
    return labels


def _say_merged(values: pl.Series, labels: pl.Series, text: str, notes: list[str]) -> None:
    ways: dict[str, dict[str, None]] = {}
    for value, label in zip(values, labels, strict=True):
        if label is not None:
            ways.setdefault(label, {})[str(value)] = None
    if several := [" and ".join(map(repr, own)) for own in ways.values() if len(own) > 1]:
        notes.append(f"{text}: {_some(several)}")


def _seed_column(frame: pl.DataFrame, free: Sequence[str], *, paired: bool | None) -> str | None:
    if "seed" in free:
        return "seed"
    found = [c for c in free if re.fullmatch(SEEDS, c, re.IGNORECASE)]
    found = [c for c in found if frame[c].n_unique() > 1]
    if len(found) > 1 and paired is not False:
        raise UserError(f"which is the seed: {' or '.join(found)}? Give --seed COLUMN")
    return found[0] if len(found) == 1 else None


def _check_history(frame: pl.DataFrame, free: Sequence[str], rows: pl.DataFrame) -> None:
    """Refuse rows that are steps of runs, in a table where nothing tells runs apart."""
    for name in (c for c in free if re.fullmatch(STEPS, c, re.IGNORECASE)):
        steps = rows.with_columns(own=_plain(frame[name]).cast(pl.Float64, strict=False))
        steps = steps.filter(why="").drop_nulls("own").group_by("variant")
        orders = steps.agg("own")["own"].to_list()
        ladders = [sorted({*own}) for own in orders]
        rises = ladders == orders and min(map(len, orders), default=0) > 4
        is_shared = len(ladders) > 1 and all(own == ladders[0] for own in ladders)
        for own in ladders:
            strides = {round(b - a, 9) for a, b in itertools.pairwise(own)}
            from_start = len(strides) == 1 and own[0] in (0, 1, *strides)
            if from_start or rises or (is_shared and len(own) > 2):
                raise UserError(
                    f"the rows of {name} {own[0]:g}, {own[1]:g}, ... would count as runs; give "
                    f"--step {name} with --seed COLUMN, --within {name}, or --seed {name}"
                )


def _unnamed(frame: pl.DataFrame, free: Sequence[str], of: pl.Series, each: str) -> list[str]:
    """Return a note that names the columns whose values variants share: seeds, other factors."""
    found = []
    for name in free:
        rows = pl.DataFrame({"variant": of, "own": _plain(frame[name])}).drop_nulls()
        shared = rows.unique().group_by("own").len()["len"] > 1
        is_number = rows["own"].str.contains(f"^{NUMBER}$").all()
        is_factor = len(shared) > 1 and (shared.all() if is_number else shared.any())
        if is_factor and not any(_is_named(name, flag[0]) for flag in FLAGS if flag[0] != ANY):
            found.append(name)
    ways = "a seed (--seed), a step (--step) or a factor (--by, --within)"
    return [f"each {each}; is {' or '.join(found[:SHOWN])} {ways}?"] if found else []


def _direction(source: Source, frame: pl.DataFrame, q: Question, notes: list[str]) -> bool:
    """Return whether higher is better, as the source says."""
    if q.metric not in source.higher or (
        source.higher[q.metric] is False and not q.higher_is_better
    ):
        odd, even = (LOWER, HIGHER) if q.higher_is_better else (HIGHER, LOWER)
        for name in (q.metric, *(frame[q.within].unique(maintain_order=True) if q.within else ())):
            own = f"{name} {re.sub('(?<=[a-z0-9])(?=[A-Z])', '_', str(name))}".lower()
            if re.fullmatch(odd, own) and not re.fullmatch(even, own):
                word = "--higher-is-better is" + ("" if q.higher_is_better else " not")
                notes.append(f"{word} given for {name}; is that right?")
        return q.higher_is_better
    stored = source.higher[q.metric]
    if stored is None and not q.higher_is_better:
        raise UserError(f"the studies of this file do not all have one direction of {q.metric}; "
                        "judge each study by itself")  # fmt: skip
    if stored is False:
        raise UserError(f"--higher-is-better contradicts the study, which minimises {q.metric}")
    if stored:
        notes.append(f"the study maximises {q.metric}")
    return True


def _states(
    frame: pl.DataFrame, free: Sequence[str], finished: Sequence[str], notes: list[str]
) -> list[str]:
    """Return why the state of a row excludes it, or that it diverged; "" if it counts."""
    result = [""] * len(frame)
    for name in free:
        own = [text or "" for text in _plain(frame[name])] if name != STATE else []
        words = [text.lower() for text in own]
        given = {*filter(None, words)}
        rest = [re.fullmatch(NUMBER, word) for word in given - SUMMARIES]
        if rest and all(rest):
            result = [MEANS if words[i] in SUMMARIES else r for i, r in enumerate(result)]
        read = [
            f for f in FLAGS if (given & f[1] if f[0] == ANY else given and _is_named(name, f[0]))
        ]
        fits = [f for f in read if all(re.fullmatch(f[3], word, re.DOTALL) for word in given)]
        is_number = all(re.fullmatch(NUMBER, word) for word in given) and not given <= YES | NO
        if read and not fits and len({*words}) > 1 and not is_number:
            several = _some(sorted({text[:20] for text in own} - {""}))
            notes.append(f"{name} ({several}) is no state: all rows count; is that right?")
        for _, good, otherwise, _ in fits[:1]:
            counts = good | {w.lower() for w in finished}
            for i, word in enumerate(words):
                if result[i] or {word, re.sub(r"^[a-z]\w*\.", "", word)} & counts:
                    continue
                reason = DIVERGED if word == DIVERGED else otherwise
                result[i] = reason + f" ({name} {own[i][:60]!r})" * (reason == UNFINISHED)
    if STATE in free:
        result = [reason or own or "" for own, reason in zip(result, frame[STATE], strict=True)]
    if all(result) and not {DELETED, DIVERGED} & set(result):
        kinds = _some(list(dict.fromkeys(result)))
        raise UserError(f"no row has finished: {kinds}; --finished STATE makes a state count")
    return result


def _is_named(name: str, pattern: str) -> bool:
    """Return whether a name is as described: `Exit Code`, `exitCode` and `exit_code` are one."""
    plain = re.sub(r"[ -]+|(?<=[a-z])(?=[A-Z])", "_", name)
    return bool(re.fullmatch(rf"(.*[./]_?|_)?{pattern}", plain, re.IGNORECASE))


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; {more} more" if more > 0 else "")
