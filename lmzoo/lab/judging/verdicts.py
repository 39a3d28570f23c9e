"""Judge results of other programs: a frame of runs -> ranking and verdicts.

The verdicts are those of `statistics.compared`, for any metric and any unit. When runs of one seed
are compared with each other, and when means are, `statistics/contrasts.py` says; which rows count,
`judging/account.py`. The heading of a report has the account.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from lmzoo.base.arguments import called
from lmzoo.base.errors import UserError, near
from lmzoo.lab.analysis.columns import FRAMES, maximized, text_table
from lmzoo.lab.analysis.formatting import digits_of, positive_halves
from lmzoo.lab.analysis.ranking import order, verdict_columns
from lmzoo.lab.analysis.render import Report, ReportFrame
from lmzoo.lab.analysis.verdict_lines import MEANINGS, NOT_CONFIRMED, SHOWN
from lmzoo.lab.judging.account import NO_PAIR, Account, Question, account
from lmzoo.lab.statistics.compared import NEGLIGIBLE, UNDECIDED, VERDICTS, compared
from lmzoo.lab.statistics.contrasts import pairs_pay, point_intervals
from lmzoo.lab.statistics.draws import follow_line
from lmzoo.lab.statistics.intervals import Array


@called
def judge(results: Any, *, by: str | Sequence[str], metric: str, **options: Any) -> ReportFrame:
    """Return the ranking of variants with their verdicts, one row per variant.

    Printed, it is the report of `lmzoo judge`.

    Args:
        results: One row per run: a polars or pandas frame, columns, rows, or a path that
            `read_results` reads.
        by: the columns that say which variant was trained.
        metric: the column to judge, in any unit.
        **options: the other fields of `Question`: `seed`, the column of the seed (None: `seed`, if
            there is one); `reference`, a variant (None: the first one); `margin`, the difference
            below which a variant is negligible, in the metric's unit; `higher_is_better` (None: as
            the source states, or the name of the metric says); `paired` (None: if all variants
            share seeds with the reference); `step`, a column of steps: the last row of each run
            counts; `best`, a column: the row at which it is best counts; `parse`, a regular
            expression whose named groups become columns, searched in the column `run` or `Name`;
            `finished`, further states with which a run counts.

    Raises:
        UserError: A column is missing, a metric is text, or nothing can be compared.
    """
    question = Question(by=by, metric=metric, **options)
    return ReportFrame.of(judgement(results, question))


def checked_account(results: Any, question: Question) -> Account:
    """Return the account of results, for `judge` and `plan`; a `UserError` if no run counts."""
    q = question
    if not 0 <= q.margin < math.inf:
        raise UserError(f"margin {q.margin} is not a number of 0 or more; give one, as 0.002")
    found = account(results, q)
    if found.question.paired and found.question.seed is None:
        raise UserError("runs are paired by a column of seeds; name it with --seed")
    variants = found.runs["variant"].unique(maintain_order=True)
    if q.reference is not None and q.reference not in variants:
        raise UserError(f"no variant {q.reference!r}{near(q.reference, variants)}")
    if found.runs.is_empty():
        raise UserError(f"no run counts: {found.line()}")
    return found


def judgement(results: Any, question: Question) -> Report:
    """Return the report of `judge`: what was compared, the table, and what its words say."""
    found = checked_account(results, question)
    q = found.question
    runs = found.runs
    table, lone = _judged(runs, q)
    table = table.with_columns(
        metric=pl.lit(q.metric),
        margin=pl.lit(q.margin),
        higher_is_better=pl.lit(bool(q.higher_is_better)),
    )
    if table["verdict"].is_null().all():
        raise UserError(f"{_why_nothing(table, q.metric)}; {found.line()}")
    report = _report(table, say_lone(found, lone))
    values = runs.group_by("variant", maintain_order=True).agg("value")["value"].to_list()
    alike = follow_line(values)
    return replace(report, warnings=(*report.warnings, *filter(None, [alike])))


def say_lone(found: Account, lone: pl.Series) -> Account:
    """Return an account in which the rows of these runs are without a pair."""
    is_lone = pl.col("row").is_in(lone.implode())
    why = pl.when(is_lone).then(pl.lit(NO_PAIR)).otherwise("why")
    return found._replace(rows=found.rows.with_columns(why=why))


def _why_nothing(table: pl.DataFrame, metric: str) -> str:
    if len(table) == 1:
        return f"there is one variant only, {table['variant'][0]!r}; a verdict compares two"
    few = table.sort("against", maintain_order=True).filter(pl.col("seeds") < 2)  # reference first
    if few.is_empty() or few["without_pair"].sum():
        return "the variants share no two seeds with a number; give --unpaired"
    if table["seeds"].max() == 0:
        return f"no run has a value of {metric}"
    if not few["seeds"][0]:
        return f"variant {few['variant'][0]!r} has no run that counts"
    return (
        f"variant {few['variant'][0]!r} has a single seed; how much a loss varies between seeds "
        "needs two runs or more of each variant"
    )


def _judged(part: pl.DataFrame, q: Question) -> tuple[pl.DataFrame, pl.Series]:
    """Return the variants, the best one first, and the rows of runs without a pair."""
    unit = _unit(part["value"], q.margin)
    part = part.with_columns(value=pl.col("value") / unit)
    losses, variants, base, lone, rows, paired = losses_of(part, q)
    asked = np.arange(len(variants)) != base
    alone = lone.sum(1)
    c = compared(losses, base, family=asked, margin=q.margin / unit, paired=paired)
    interval = point_intervals(losses, reference=base)
    known = (~np.isnan(losses)).sum(1)
    runs = part.group_by("variant", maintain_order=True).len()["len"].to_numpy()
    columns = {
        "rank": order(losses, interval.mean), "variant": variants,
        "mean": interval.mean, "low": interval.low, "high": interval.high,
        "against": [variants[base] if own else None for own in asked],
        **verdict_columns(c),
        "seeds": known, "missing": runs - known - alone, "without_pair": alone,
        "diverged": np.isposinf(losses).sum(1), "paired": np.full(len(variants), paired),
    }  # fmt: skip
    whole = pl.col("seeds", "missing", "without_pair", "diverged", "seeds_needed", "sign")
    table = pl.DataFrame(columns, schema_overrides={"against": pl.String}).fill_nan(None)
    table = table.with_columns(whole.cast(pl.Int64), pl.col("rank").rank("min").cast(pl.Int64))
    of_unit = [
        name for column in FRAMES["judged"] if column.unit for name in (column.name, *column.ends)
    ]
    table = table.with_columns(
        pl.col(n) * unit for n in of_unit if unit != 1 and n in table.columns
    )
    table = maximized(table, "judged") if q.higher_is_better else table
    return table.sort("rank", nulls_last=True, maintain_order=True), rows


def _unit(values: pl.Series, margin: float) -> float:
    """Return 1, or a power of 2 by which values are divided whose squares no float can hold."""
    largest = max([margin, *(abs(own) for own in values.drop_nulls() if math.isfinite(own))])
    return 1.0 if 1e-60 < largest < 1e60 else 2.0 ** math.frexp(largest)[1]


class Losses(NamedTuple):
    """The losses of P variants, lower is better: inf for a diverged run, NaN for a missing one."""

    values: Array
    """(P, S); a run without a pair is in no number, so its loss is NaN."""
    variants: list[str]
    base: int
    lone: np.ndarray
    """Which runs have no pair, (P, S); a diverged run is a count."""
    rows: pl.Series
    """The rows of these runs."""
    paired: bool
    """Whether the columns are seeds."""


def losses_of(runs: pl.DataFrame, q: Question) -> Losses:
    """Return the losses of runs, in pairs if `--paired` or the noise says so."""
    variants = runs["variant"].unique(maintain_order=True).to_list()
    base = 0
    if q.reference is not None:
        base = variants.index(q.reference)
    value = pl.col("value")
    loss = value
    if q.higher_is_better:
        loss = -value
    runs = runs.with_columns(
        loss=pl.when(value.is_finite()).then(loss).when(value.is_not_null()).then(math.inf),
        number=pl.int_range(pl.len()).over("variant"),
    )

    def matrix(column: str, cell: str) -> Array:
        wide = runs.pivot(column, index="variant", values=cell).drop("variant")
        return np.array(wide.cast(pl.Float64))

    x = matrix("key", "loss")
    if not _are_pairs(x, base, q):
        x = matrix("number", "loss")
        none = np.zeros(x.shape, bool)
        return Losses(x, variants, base, none, runs["row"][:0], paired=False)
    known = ~np.isnan(x)
    is_base = np.arange(len(x))[:, None] == base
    partner = np.where(is_base, known[~is_base[:, 0]].any(0), known[base])
    lone = np.isfinite(x) & ~partner
    x[lone] = math.nan
    rows = pl.Series(matrix("key", "row")[lone]).cast(pl.Int64)
    return Losses(x, variants, base, lone, rows, paired=True)


def _are_pairs(x: Array, base: int, q: Question) -> bool:
    """Return whether each variant shares two seeds and half of its seeds, and pairs pay."""
    if q.seed is None or q.paired is not None:
        return bool(q.seed and q.paired)
    asked = np.arange(len(x)) != base
    known = ~np.isnan(x)
    common = (known & known[base]).sum(1)[asked]
    fewest = np.minimum(known.sum(1), known[base].sum())[asked]
    is_shared = (common >= 2) & (2 * common >= fewest)
    return bool(len(common) and is_shared.all()) and pairs_pay(x, np.full(len(x), base), asked)


def _report(table: pl.DataFrame, given: Account) -> Report:
    q = given.question
    metric = q.metric
    asked = table.filter(pl.col("verdict").is_not_null())
    counts = dict(asked["verdict"].value_counts().rows())
    found = [v for v in VERDICTS if v in counts]
    said = ", ".join(f"{counts[v]} {SHOWN.get(v, v)}" for v in found)
    to = repr(asked["against"][0])
    if len(asked) == 1:
        contrasts = "1 contrast"
    else:
        contrasts = f"{len(asked)} contrasts"
    better = "higher" if q.higher_is_better else "lower"
    nothing = "no margin, so nothing is negligible (--margin)"
    of_margin = f"margin {q.margin:g}" if q.margin else nothing
    heading = [f"{metric}, {better} is better; {of_margin}; means of seeds, 95 % intervals"]
    if asked["paired"].any():
        heading.append(f"paired by {q.seed}: runs of one {q.seed} are compared with each other")
    if not asked["paired"].all():
        heading.append("unpaired: means of independent runs are compared")
    warnings = list[str]()
    lacking = (pl.col("missing") > 0) | (pl.col("diverged") > 0) | (pl.col("without_pair") > 0)
    for row in table.filter(lacking).to_dicts():
        runs = row["seeds"] + row["missing"] + row["without_pair"]
        parts = [
            f"{row['missing']} missing" if row["missing"] else "",
            f"{row['without_pair']} of {runs} without a pair: not in the difference, mean and rank"
            if row["without_pair"] else "",
            f"{row['diverged']} of {row['seeds']} diverged (NaN or infinite): counted, in no mean"
            if row["diverged"] else "",
        ]  # fmt: skip
        warnings.append(f"{row['variant']}: {'; '.join(filter(None, parts))}")
    single = table.filter((pl.col("seeds") == 1) & pl.col("verdict").is_null())
    if not single.is_empty():
        names = ", ".join(map(repr, single["variant"].unique(maintain_order=True)))
        warnings.append(f"a single seed, so no verdict: {names}")
    legend = [f"{SHOWN.get(v, v)}: {MEANINGS[v]}" for v in found]
    is_sign = ~pl.col("verdict").is_in([NEGLIGIBLE, UNDECIDED])
    if asked.filter(is_sign & ~pl.col("confirmed")).height:
        legend.append(f"{NOT_CONFIRMED}: no fresh seeds have repeated the sign")
    legend.append(
        "p: of a difference of 0, corrected for the contrasts of the table; the sign is shown if "
        "it is below 0.05"
    )
    names = {"mean": metric}
    shown = [replace(c, heading=names.get(c.name, c.heading)) for c in FRAMES["judged"]]
    known = positive_halves(table, "mean")
    digits = digits_of(min(known), table["mean"].drop_nulls(), 0) if known else "3f"
    text = text_table("ranking", table.to_dicts(), shown, digits)
    return Report(
        heading=tuple(heading),
        tables=(text,),
        legend=tuple(legend),
        frame=table,
        answer=f"{contrasts} with {to}: {said}",
        warnings=(*warnings, *given.notes),
        account=given.counts(),
    )


def as_ranking(table: pl.DataFrame) -> pl.DataFrame:
    """Return the variants with the columns of a ranking, which its charts read."""
    references = table["against"].drop_nulls().unique()
    return table.with_columns(
        label="variant",
        reference=pl.col("against").is_null() & pl.col("variant").is_in(references.implode()),
        is_baseline=pl.lit(value=False),
        confirm_diverged="diverged",
        confirm="seeds",
        score=pl.lit("metric"),
        fingerprint=pl.lit(""),
    )
