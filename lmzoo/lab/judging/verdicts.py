"""Judge results of other programs: a frame of runs -> ranking and verdicts.

The verdicts are those of `statistics.compared`, for any metric and any unit. When runs of one seed
are compared with each other, and when means are, `statistics/contrasts.py` says; which rows count,
`judging/account.py`. The heading of a report has the account.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars import DataFrame, Float64, Int64, Series, String, col, lit, when
from polars.selectors import by_name

from lmzoo.base.arguments import called
from lmzoo.base.errors import UserError, near
from lmzoo.lab.analysis.columns import FRAMES, maximized, text_table, with_heading
from lmzoo.lab.analysis.formatting import digits_of, positive_halves
from lmzoo.lab.analysis.ranking import order, verdict_columns
from lmzoo.lab.analysis.render import Report, ReportFrame
from lmzoo.lab.analysis.verdict_lines import SHOWN, meanings
from lmzoo.lab.judging.account import NO_PAIR, Account, Question, account
from lmzoo.lab.judging.searches import DIFFER
from lmzoo.lab.judging.texts import check_margin
from lmzoo.lab.statistics.compared import VERDICTS, compared
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


class Judged(NamedTuple):
    """Results that were read, checked and compared; `judge` and `plan` print these."""

    account: Account
    losses: "Losses"
    table: DataFrame
    """One row a variant, the best one first."""
    warnings: tuple[str, ...]
    """What is doubtful about the runs."""


def judged(results: Any, question: Question) -> Judged:
    """Return the comparison of results; a `UserError` if no two variants can be compared.

    A single variant has a table without a verdict.
    """
    check_margin(question.margin)
    found = account(results, question)
    question = found.question
    # Rows have no order that could pair them.
    if question.paired and question.seed is None:
        raise UserError("runs are paired by a column of seeds; name it with --seed")
    variants = found.runs["variant"].unique(maintain_order=True)
    reference = question.reference
    if reference is not None and reference not in variants:
        raise UserError(f"no variant {reference!r}{near(reference, variants)}")
    if found.runs.is_empty():
        raise UserError(f"no run counts: {found.line()}")
    losses = losses_of(found.runs, question)
    table = _table(losses, question)
    # A table without any verdict would look like one in which nothing was shown.
    nothing_known = table["verdict"].is_null().all()
    if len(table) > 1 and nothing_known:
        raise UserError(f"{_why_nothing(table, question.metric)}; {found.line()}")
    is_lone = col("row").is_in(losses.lone.implode())
    why = when(is_lone).then(lit(NO_PAIR)).otherwise("why")
    rows = found.rows.with_columns(why=why)
    # Runs that share what should differ are fewer runs than they seem.
    by_variant = found.runs.group_by("variant", maintain_order=True)
    values = by_variant.agg("value")["value"]
    alike = follow_line(values.to_list())
    warnings = list(_lacking(table)) + found.notes
    if alike:
        warnings.append(alike)
    # What makes all differences doubtful stands before the verdict.
    warnings.sort(key=lambda line: not line.startswith(DIFFER))
    found = found._replace(rows=rows)
    return Judged(found, losses, table, tuple(warnings))


def judgement(results: Any, question: Question) -> Report:
    """Return the report of `judge`: what was compared, the table, and what its words say."""
    found = judged(results, question)
    if len(found.table) == 1:
        raise UserError(
            f"there is one variant only, {found.table['variant'][0]!r}; a verdict compares two; "
            f"{found.account.line()}"
        )
    return _report(found)


def _why_nothing(table: DataFrame, metric: str) -> str:
    few = table.filter(col("seeds") < 2)
    few = few.sort("against", maintain_order=True)  # reference first
    if few.is_empty() or few["without_pair"].sum():
        return "the variants share no two seeds with a number; give --unpaired"
    if table["seeds"].max() == 0:
        return f"no run has a value of {metric}"
    name = few["variant"][0]
    said = f"variant {name!r} has a single seed; how much a loss varies needs two runs of each"
    if not few["seeds"][0]:
        said = f"variant {name!r} has no run that counts"
    if len(few) < len(table) - 1:  # two others can be compared
        said += "; --reference NAME compares with another one"
    return said


def _lacking(table: DataFrame) -> Iterator[str]:
    """Yield which variants lack runs, pairs or seeds."""
    for row in table.to_dicts():
        seeds = row["seeds"]
        missing = row["missing"]
        alone = row["without_pair"]
        diverged = row["diverged"]
        runs = seeds + missing + alone
        said = []
        if missing:
            said.append(f"{missing} missing")
        if alone:
            said.append(f"{alone} of {runs} without a pair: not in the difference, mean and rank")
        if diverged:
            said.append(f"{diverged} of {seeds} diverged (NaN or infinite): counted, in no mean")
        if said:
            yield f"{row['variant']}: {'; '.join(said)}"
    is_single = col("seeds") == 1
    single = table.filter(is_single, col("verdict").is_null())
    if len(single):
        names = map(repr, single["variant"])
        yield f"a single seed, so no verdict: {', '.join(names)}"


def _table(losses: "Losses", question: Question) -> DataFrame:
    """Return the variants, the best one first, in the unit of the metric."""
    values = losses.values
    base = losses.base
    unit = losses.unit
    is_asked = np.arange(len(values)) != base
    margin = question.margin / unit
    found = compared(values, base, family=is_asked, margin=margin, paired=losses.paired)
    interval = point_intervals(values, reference=base)
    is_known = ~np.isnan(values)
    known = is_known.sum(1)
    against: list[str | None] = [losses.variants[base]] * len(values)
    against[base] = None
    means = {
        "rank": order(values, interval.mean),
        "variant": losses.variants,
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "against": against,
    }
    counts = {
        "seeds": known,
        "missing": losses.runs - known - losses.alone,
        "without_pair": losses.alone,
        "diverged": np.isposinf(values).sum(1),
    }
    columns = means | verdict_columns(found) | counts
    whole = col(["seeds_needed", "sign"] + list(counts))
    rank = col("rank").rank("min")
    # With a single variant, no cell would tell the type of `against`.
    table = DataFrame(columns, schema_overrides={"against": String})
    table = table.fill_nan(None).with_columns(
        whole.cast(Int64),
        rank.cast(Int64),
        paired=lit(losses.paired),
        metric=lit(question.metric),
        margin=lit(question.margin),
        # `maximized` below turns this and all numbers together.
        higher_is_better=lit(value=False),
    )
    # The comparison was made in another unit, so that no square overflows.
    for column in FRAMES["judged"]:
        if column.unit and unit != 1:
            of_unit = by_name(*column.names, require_all=False)
            table = table.with_columns(of_unit * unit)
    if question.higher_is_better:
        table = maximized(table, "judged")
    return table.sort("rank", nulls_last=True, maintain_order=True)


def _unit(values: Series, margin: float) -> float:
    """Return 1, or a power of 2 by which values are divided whose squares no float can hold."""
    sizes = values.filter(values.is_finite()).abs()
    largest = max(sizes.to_list() + [margin])
    # A square overflows above 1e154, and is 0 below 1e-162.
    if 1e-60 < largest < 1e60:
        return 1.0
    _, exponent = math.frexp(largest)
    return 2.0**exponent


class Losses(NamedTuple):
    """The losses of P variants, lower is better: inf for a diverged run, NaN for a missing one."""

    values: Array
    """(P, S), divided by the unit; a run without a pair is in no number, so its loss is NaN."""
    variants: list[str]
    base: int
    runs: np.ndarray
    """The number of runs of each variant, (P,), and of those without a pair."""
    alone: np.ndarray
    lone: Series
    """The rows of runs without a pair."""
    paired: bool
    """Whether the columns are seeds."""
    unit: float


def losses_of(runs: DataFrame, question: Question) -> Losses:
    """Return the losses of runs, in pairs if `--paired` or the noise says so."""
    variants = runs["variant"].unique(maintain_order=True).to_list()
    base = 0
    if question.reference is not None:
        base = variants.index(question.reference)
    unit = _unit(runs["value"], question.margin)
    sign = 1
    if question.higher_is_better:
        sign = -1
    value = col("value")
    finite = when(value.is_finite()).then(value * (sign / unit))
    number = pl.int_range(pl.len())
    runs = runs.with_columns(
        loss=finite.when(value.is_not_null()).then(math.inf),
        number=number.over("variant"),
    )

    def matrix(column: str, cell: str) -> Array:
        wide = runs.pivot(column, index="variant", values=cell)
        return np.array(wide.drop("variant").cast(Float64))

    losses = matrix("key", "loss")
    paired = _are_pairs(losses, base, question)
    lone = np.zeros_like(losses, bool)
    rows = runs["row"].clear()
    if paired:
        known = ~np.isnan(losses)
        is_base = np.arange(len(losses)) == base
        of_base = known[~is_base].any(0)
        partner = np.where(is_base[:, None], of_base, known[base])
        # A diverged run is a count, with or without a partner.
        lone = np.isfinite(losses) & ~partner
        losses[lone] = math.nan
        rows = Series(matrix("key", "row")[lone]).cast(Int64)
    else:
        # Without pairs, a column is only the place of a run in its variant.
        losses = matrix("number", "loss")
    by_variant = runs.group_by("variant", maintain_order=True)
    return Losses(
        values=losses,
        variants=variants,
        base=base,
        runs=by_variant.len()["len"].to_numpy(),
        alone=lone.sum(1),
        lone=rows,
        paired=paired,
        unit=unit,
    )


def _are_pairs(losses: Array, base: int, question: Question) -> bool:
    """Return whether each variant shares two seeds and half of its seeds, and pairs pay."""
    if question.seed is None:
        return False
    # What the user asks for is done, whatever the noise says.
    if question.paired is not None:
        return question.paired
    is_asked = np.arange(len(losses)) != base
    known = ~np.isnan(losses)
    seeds = known.sum(1)
    common = (known & known[base]).sum(1)
    fewest = np.minimum(seeds, seeds[base])
    # With fewer common seeds, the runs without a pair would cost more than pairs bring.
    is_shared = (common >= 2) & (2 * common >= fewest)
    if not is_asked.any() or not is_shared[is_asked].all():
        return False
    return pairs_pay(losses, base, is_asked)


def _report(found: Judged) -> Report:
    table = found.table
    question = found.account.question
    asked = table.drop_nulls("verdict")
    counts = dict(asked["verdict"].value_counts().rows())
    said = [
        f"{counts[verdict]} {SHOWN.get(verdict, verdict)}"
        for verdict in VERDICTS
        if verdict in counts
    ]
    contrasts = f"{len(asked)} contrasts"
    if len(asked) == 1:
        contrasts = "1 contrast"
    better = "lower"
    if question.higher_is_better:
        better = "higher"
    of_margin = "no margin, so nothing is negligible (--margin)"
    if question.margin:
        of_margin = f"margin {question.margin:g}"
    pairs = "unpaired: means of independent runs are compared"
    if found.losses.paired:
        pairs = (
            f"paired by {question.seed}: runs of one {question.seed} are compared with each other"
        )
    legend = meanings(table)
    legend.append(
        "p: of a difference of 0, corrected for the contrasts of the table; the sign is shown if "
        "it is below 0.05"
    )
    shown = with_heading(FRAMES["judged"], "mean", question.metric)
    halves = positive_halves(table, "mean")
    digits = "3f"
    if halves:
        means = table["mean"].drop_nulls()
        # A metric may have any size.
        digits = digits_of(min(halves), means, 0)
    text = text_table("ranking", table.to_dicts(), shown, digits)
    return Report(
        heading=(
            f"{question.metric}, {better} is better; {of_margin}; means of seeds, 95 % intervals",
            pairs,
        ),
        tables=(text,),
        legend=tuple(legend),
        frame=table,
        answer=f"{contrasts} with {asked['against'][0]!r}: {', '.join(said)}",
        warnings=found.warnings,
        grave=sum(line.startswith(DIFFER) for line in found.warnings),
        account=found.account.counts(),
    )


def as_ranking(table: DataFrame) -> DataFrame:
    """Return the variants with the columns of a ranking, which its charts read."""
    references = table["against"].drop_nulls().unique()
    is_named = col("variant").is_in(references.implode())
    return table.with_columns(
        label="variant",
        reference=col("against").is_null() & is_named,
        is_baseline=lit(value=False),
        confirm_diverged="diverged",
        confirm="seeds",
        score=lit("metric"),
        fingerprint=lit(""),
    )
