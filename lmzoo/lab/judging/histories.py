"""Read the histories of runs: the row of each that counts, and its continuations.

A frame of rows has the columns of `ROWS`. All rows of a run have one number in `run`; a row of no
run has none.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import DataFrame, Float64, Int64, Series, String, col, lit

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.judging.directions import better
from lmzoo.lab.judging.texts import SHOWN, STEPS, some

if TYPE_CHECKING:
    from lmzoo.lab.judging.account import Question

IDENTITY = ("variant", "key")
"""What tells runs apart; the key is a seed, or what else tells the runs of a variant apart."""
ROWS: FieldsDict = {
    "row": Int64,
    "run": Int64,
    "variant": String,
    "key": String,
    "name": String,
    "why": String,  # it does not count, or ""
    "value": Float64,
    "best": Float64,  # by which the best row of a run is chosen
    "step": Float64,
}
VALUE = col("value")
STEP = col("step")
USABLE = col("run").is_not_null() & (col("why") == "")
KNOWN = USABLE & VALUE.is_not_null()
"""Rows that may count, and have a value."""


def continue_runs(rows: DataFrame, notes: list[str], *, with_seeds: bool) -> DataFrame:
    """Make a run that begins where another of its variant (and seed) ends a part of it; say so."""
    by_run = rows.filter(KNOWN).group_by("run", "name")
    spans = by_run.agg(
        pl.first("variant", "key"),
        start=STEP.min(),
        end=STEP.max(),
        steps=STEP.n_unique(),
    )
    spans = spans.with_columns(shown=pl.coalesce("name", "key"))
    moved: dict[tuple[int, str | None], Fields] = {}
    whole: dict[Any, list[FieldsDict]] = {}
    # In the order of their beginnings, so that a part finds what it continues.
    for part in spans.sort("start", "run", "name").to_dicts():
        owner = part["variant"]
        if with_seeds:
            owner = (owner, part["key"])
        known = whole.setdefault(owner, [])
        found = _continued(known, part["start"])
        if found is None:
            known.append(part)
            continue
        ends = f"{found['start']:g} to {found['end']:g}, {part['start']:g} on"
        notes.append(f"{part['shown']} continues {found['shown']} ({ends}): one run")
        found["end"] = part["end"]
        found["steps"] += part["steps"]
        moved[part["run"], part["name"]] = found
    if not moved:
        return rows
    names = ("run", "key", "name")
    new = [moved.get((row["run"], row["name"]), row) for row in rows.select(names).to_dicts()]
    schema = {name: ROWS[name] for name in names}
    return rows.with_columns(DataFrame(new, schema))


def _continued(runs: Sequence[FieldsDict], start: float) -> FieldsDict | None:
    """Return the run whose next step this is, within one and a half of its strides."""
    for run in runs:
        end = run["end"]
        stride = (end - run["start"]) / max(1, run["steps"] - 1)
        if stride == 0:  # of a run of one step
            stride = 1
        if end < start <= end + 1.5 * stride:
            return run
    return None


def picked_rows(
    rows: DataFrame, free: DataFrame, question: "Question", words: tuple[str, str], notes: list[str]
) -> DataFrame:
    """Return the row of each run that counts: its last one with a value, or its best one.

    `free` has the columns that the question does not name; `words` are what tells runs apart, and
    what orders their rows. A `UserError` names two rows of one run.
    """
    key, at = words
    # The last row that has the metric counts: many programs end with a row of other numbers.
    known = rows.filter(KNOWN)
    notes += _check_runs(known, free, question, key)
    last = known.filter(STEP.max().over("run") == STEP)
    notes += _said_of_ends(known, last, question.step, at, key)
    last = last.group_by("run").last().sort("run")
    if question.step is None:
        return last
    best = _best(rows, known, question)
    # Trainers keep the best epoch, so a line says whether it would change a sign.
    if question.best is None:
        notes += _beside_best(last, best, question)
        return last
    least = best["count"].min()
    most = best["count"].max()
    notes.append(f"the best row of each run by {question.best} counts, of {least} to {most} rows")
    return best


def _shown(run: Fields, key: str) -> str:
    return f"variant {run['variant']!r}, {key} {run['key']}"


def _all_shown(runs: DataFrame, key: str) -> str:
    return some([_shown(run, key) for run in runs.to_dicts()])


def _check_runs(known: DataFrame, free: DataFrame, question: "Question", key: str) -> Iterator[str]:
    """Refuse two runs of one name, two rows without a step, and a row that lacks its step.

    Yield which runs have one value in all their rows, as a file that also has a history.
    """
    by_run = known.group_by("run").agg(
        pl.first("variant", "key", "row"),
        names=col("name").unique(maintain_order=True),
        rows=pl.len(),
        steps=STEP.n_unique(),
        values=VALUE.n_unique(),
    )
    runs = by_run.sort("run")
    of_two_names = runs.filter(col("names").list.len() > 1)
    if len(of_two_names):
        run = of_two_names.row(0, named=True)
        first, second = run["names"][:2]
        raise UserError(
            f"two runs have {_shown(run, key)}: {first!r} and {second!r}; keep one of them, or "
            "tell them apart with more --by or another --seed"
        )
    several = runs.filter(col("rows") > 1)
    if question.step is not None and runs["steps"].max() != 1:  # their rows have an order
        several = several.clear()
    is_named = col("names").list.first().is_not_null()
    is_repeated = is_named & (col("values") == 1)
    unclear = several.filter(~is_repeated)
    if len(unclear):
        run = unclear.row(0, named=True)
        own = known.filter(run=run["run"])
        raise UserError(f"two rows have {_shown(run, key)}{_told_apart(own['row'], free)}")
    has_step = STEP.is_finite().fill_null(value=False)
    lacking = known.filter(~has_step)["row"]
    if question.step is not None and len(lacking):
        raise UserError(
            f"row {lacking[0] + 1} has no {question.step}; fill it, or leave out --step"
        )
    if len(several):
        yield f"rows of one run that have one value count once: {_all_shown(several, key)}"


def _told_apart(rows: Series, free: DataFrame) -> str:
    """Return what tells the rows of a run apart, and how to name it.

    A factor has values that other runs share; what is measured is another number in each row.
    """
    steps = []
    factors = []
    for cells in free:
        name = cells.name
        own = cells.gather(rows).drop_nulls()
        if own.n_unique() < 2:
            continue
        if STEPS.fullmatch(name):
            steps.append(name)
        elif cells.n_unique() <= len(free) // 2:
            factors.append(name)
    said = ""
    if factors:
        said = f", which differ in {' and '.join(factors[:SHOWN])}"
    advice = "more --by or another --seed tell runs apart; else keep one row of each run"
    if steps:
        advice = f"--step {steps[0]} keeps the last row of each run, {advice}"
    return f"{said}; {advice}"


def _said_of_ends(
    known: DataFrame, last: DataFrame, step: str | None, at: str, key: str
) -> Iterator[str]:
    """Say which runs have several values at their end, begin again, or end before others."""
    identity = pl.first("variant", "key")
    # A history in another order has each step once; one that begins again has its last twice.
    final = STEP.last()
    is_repeated = (final == STEP).sum() > 1
    is_again = (final < STEP.max()) & is_repeated
    ends = last.group_by("run").agg(identity, STEP.first(), values=VALUE.n_unique())
    ends = ends.sort("run")
    several = ends.filter(col("values") > 1)
    if len(several):
        shown = _all_shown(several, key)
        yield f"several values at the last {step}; the last row counts: {shown}"
    runs = known.group_by("run").agg(identity, again=is_again)
    again = runs.filter("again").sort("run")
    if len(again):
        yield f"{step} begins again, and its largest value counts: {_all_shown(again, key)}"
    early = ends.filter(STEP.max() > STEP)
    if len(early):
        texts = [f"{_shown(run, key)} (at {run['step']:g})" for run in early.to_dicts()]
        latest = ends["step"].max()
        yield f"stopped before {at} {latest:g}, judged by their last value: {some(texts)}"


def _best(rows: DataFrame, known: DataFrame, question: "Question") -> DataFrame:
    """Return the row of each run at the step at which a column is best, and of how many rows."""
    is_higher = question.higher_is_better
    stated = better(question.best or question.metric)
    # The direction that was given is that of the metric, not that of the other column.
    if question.best not in (None, question.metric) and stated is not None:
        is_higher = stated
    best = col("best")
    at_best = best.arg_min()
    if is_higher:
        at_best = best.arg_max()
    by_run = rows.filter(USABLE & best.is_finite()).group_by("run")
    finite = by_run.agg(at=STEP.get(at_best), count=pl.len())
    joined = known.join(finite, on="run", how="left", maintain_order="left")
    joined = joined.with_columns(col("count").fill_null(0))
    at_step = joined.filter(col("at").fill_null(STEP) == STEP)
    found = at_step.group_by("run").last().sort("run")
    # The metric may be logged at other steps than the column.
    lost = joined.join(found, on="run", how="anti")
    if len(lost):
        run = lost.row(0, named=True)
        raise UserError(
            f"variant {run['variant']!r}, {run['key']} has no {question.metric} at the "
            f"{question.step} of its best {question.best}; log both at one {question.step}"
        )
    return found


def _beside_best(last: DataFrame, best: DataFrame, question: "Question") -> Iterator[str]:
    """Say the means of the last and of the best values, and where a sign turns."""
    tops = best.select("run", top="value")
    ends = last.filter(VALUE.is_finite())
    ends = ends.join(tops, on="run", maintain_order="left")
    by_variant = ends.group_by("variant", maintain_order=True)
    means = by_variant.agg(VALUE.mean(), pl.mean("top"))
    if means["value"].equals(means["top"]):
        return
    texts = [
        f"{row['variant']} {row['value']:.4g}, best {row['top']:.4g}" for row in means.to_dicts()
    ]
    said = f"last values count, not the best ones of runs (--best): {some(texts)}"
    is_other = col("variant").ne_missing(lit(question.reference))
    # Without a reference, the first variant is it.
    first = means.sort(is_other, maintain_order=True).row(0, named=True)
    of_ends = VALUE - first["value"]
    of_tops = col("top") - first["top"]
    turned = means.filter(of_ends * of_tops < 0)["variant"]
    if len(turned):
        said += f"; the sign of {' and '.join(turned[:SHOWN])} turns"
    yield said
