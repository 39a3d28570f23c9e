"""Rank the points of a study: records -> one row per point, the best first.

    loss         mean over the point's confirm runs, with its interval over seeds
    difference   to the reference point; the interval includes how the setting was chosen
    verdict      one of `VERDICTS` of `compared.py`, over the points of the reference's table
                 without baselines and leaking rows; the seeds that an undecided point would need,
                 or that it needs more tuning runs
    rank         within a table; a table has one kind of score and one data set
    marks        `MARKS` of `ranking_table.py`, and `leaks`: the input includes the tokens predicted

A diverged confirm run leaves its point's mean to the other seeds. It is counted, and the point with
the least share of such runs is the first, whatever the means. A point without any run is last and
has no rank. Tune runs are counted, never averaged. `lmzoo/lab/statistics/` defines the
intervals, the ranks and the verdicts.

On a task, whose loss counts some tokens only, seeds often end in two groups. A run that does not
solve the task (`counts.solves`) is counted as a diverged one: losses are those of the runs that do.
Points have accuracies, too:

    accuracy            mean over seeds of the share of scored tokens that are the most probable
    accuracy_low, high  of the worst and the best seed: seeds either solve a task or do not, so an
                        interval of the mean would tell little
    solved              the seeds that solve the task; null where nothing says when it is solved
    sequence_accuracy   mean over seeds of the share of sequences without a wrong scored token
    ceiling             the greatest accuracy that any model can reach

Exact rows are also compared with the n-gram baseline of their table, with modified Kneser-Ney
smoothing. On a contiguous text it is the n-gram whose order the validation split chooses, counted
over the whole text; elsewhere, and in records of earlier versions, it is the 5-gram.

    kn5_difference   loss − loss of the baseline, with its interval over seeds and tuning
    kn5              loses       a higher loss is shown
                     wins        a lower loss is shown
                     undecided   neither
                     one seed    there is no interval

The signs are those of `compared.py` with the baseline as the reference: all rows of a table
together are right with 95 %. Count models are not compared.
"""

import json
from collections.abc import Sequence
from math import inf, nan

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars import DataFrame, Float64, Int64, LazyFrame, Series, String, col, lit, when

from lmzoo.base.environment import apart
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.analysis.columns import add_values, maximized
from lmzoo.lab.analysis.environments import of_points
from lmzoo.lab.analysis.formatting import (
    METRIC,
    add_columns,
    add_sizes,
    asked_of,
    text_sizes,
)
from lmzoo.lab.analysis.load import confirm_runs, is_maximized, status_at
from lmzoo.lab.analysis.seeds import by_seed
from lmzoo.lab.statistics.compared import MARGIN, Compared, compared, read_looks
from lmzoo.lab.statistics.contrasts import point_intervals, rank_intervals, unfair
from lmzoo.lab.statistics.counts import solves
from lmzoo.lab.statistics.intervals import Array, is_impossible
from lmzoo.lab.store.labels import architecture

TABLE_KEYS = ["score", "fingerprint"]
"""Columns in which two points must agree to be ranked against each other."""
SCORE_ORDER = ("exact", "bound", "reconstruction", "conditional")
"""Kinds of score, in the order of their tables."""
FACTS = [
    "point",
    "score",
    "fingerprint",
    "model",
    "corpus",
    "vocab",
    "length",
    "parameters",
    "leaks",
    "floor_token",
    "floor_sentence",
    "state_size",
    "flops",
    "program",
]
"""Columns of runs that are facts of a point."""


def rank_points(
    runs: LazyFrame, events: LazyFrame, study: Fields, *, metric: str = "token"
) -> DataFrame:
    """Rank a study's points by the losses of `confirm_runs`; columns: `RANKING` of `columns.py`.

    A `UserError` says that no point has a loss.
    """
    confirm, epoch = confirm_runs(runs, events, study, metric)
    runs = runs.with_columns(status=status_at(epoch))
    confirm = _with_accuracies(confirm, events, study, epoch)
    table = _point_facts(study, runs, confirm)
    for facts in (_training_seconds(confirm, events), _point_accuracies(confirm)):
        table = add_columns(table, facts, "point")
    of_others = apart(of_points(confirm), study.get("reference", ""))
    table = table.with_columns(apart=col("point").is_in(list(of_others)))
    losses = with_lost(confirm)
    parts = [
        add_statistics(part, losses, study)
        for part in table.partition_by(TABLE_KEYS, maintain_order=True)
    ]
    sizes = text_sizes(runs, events)
    if metric != "token":  # the bits are those of all tokens of the test split
        sizes = sizes.clear()
    table = add_sizes(pl.concat(parts), sizes)
    tests = events.filter(event="test").join(runs, on="run")
    # Only these columns: the others of a run are long texts.
    tests = tests.select("fingerprint", "sequences", "metric").collect()
    counts = tests.group_by("fingerprint").agg(pl.max("sequences"))
    table = add_columns(table, counts, "fingerprint")
    asked = asked_of(study)
    own_split = "test"
    # A program that reports no test metric is compared by the metric that chose its setting.
    if asked.get("metric", "") in tests["metric"]:
        own_split = "validation"
    return _add_derived_columns(table, asked, metric, own_split, epoch)


def with_lost(confirm: DataFrame) -> DataFrame:
    """Return runs with an infinite loss where one diverged or has not solved its task."""
    if "solved" in confirm.columns:
        is_kept = col("solved").fill_null(value=True)
        loss = when(is_kept).then("loss").otherwise(inf)
        confirm = confirm.with_columns(loss=loss)
    return confirm.drop_nulls("seed")


def _point_facts(study: Fields, runs: LazyFrame, confirm: DataFrame) -> DataFrame:
    own = runs.collect()
    both = [confirm.select(FACTS), own.select(FACTS)]
    known = pl.concat(both).drop_nulls("score")
    # Runs of an older version do not know all facts, and a join has no order.
    first_known = pl.all().drop_nulls().first()
    known = known.group_by("point").agg(first_known)
    models = map(json.loads, known["model"])
    names = Series(list(map(architecture, models)), dtype=String)
    known = known.with_columns(architecture=names)
    counts = own.group_by("point").agg(
        tune=_count("stage", "tune"),
        pruned=_count("status", "pruned"),
        diverged=_count("status", "diverged"),
        failed=_count("status", "failed"),
    )
    confirm_counts = confirm.group_by("point").agg(
        confirm=pl.len(),
        runs=col("loss").is_finite().sum(),
        confirm_diverged=_count("status", "diverged"),
    )
    table = _study_points(study).join(known, on="point", maintain_order="left")
    for counted in (counts, confirm_counts):
        table = add_columns(table, counted, "point")
    # A count is unsigned, and its differences would be, too.
    count = col(pl.UInt32).fill_null(0)
    table = table.with_columns(count.cast(Int64))
    missing = col("confirm") - col("runs") - col("confirm_diverged")
    return table.with_columns(missing=missing)


def _count(name: str, value: str) -> pl.Expr:
    return (col(name) == value).sum()


def _training_seconds(confirm: DataFrame, events: LazyFrame) -> DataFrame:
    epochs = events.filter(event="epoch").group_by("run")
    of_runs = epochs.agg(pl.sum("seconds")).collect()
    # A run that diverged early was cheap, and has no loss to compare its time with.
    counted = confirm.filter(col("loss").is_finite())
    by_point = counted.join(of_runs, on="run").group_by("point")
    # Rounded, because sums of parts have no order.
    return by_point.agg(pl.mean("seconds").round(6))


def _study_points(study: Fields) -> DataFrame:
    texts = pl.List(String)
    schema = {
        "point": String,
        "label": String,
        "aliases": texts,
        "setting": String,
        "edge": texts,
        "equations": texts,
    }
    rows = []
    for point in study["points"]:
        chosen = study["chosen"].get(point["id"], {})
        setting = None
        if chosen:
            setting = json.dumps(chosen["setting"])
        row = {
            "point": point["id"],
            "label": point["label"],
            "aliases": point.get("aliases", []),
            "setting": setting,
            "edge": chosen.get("edge", []),
            "equations": point.get("equations", []),
        }
        rows.append(row)
    return DataFrame(rows, schema)


def _add_derived_columns(
    table: DataFrame, asked: Fields, metric: str, own_split: str, epoch: int
) -> DataFrame:
    """Add the columns that follow from others, and sort the rows.

    `asked` are the options of the study. `own_split` has the metrics of programs; the losses of
    rows of the zoo are of the test split.
    """
    is_metric = when(col("score") == METRIC)
    unit = asked.get("unit")
    if not unit:
        unit = asked.get("metric", "")
    table = table.with_columns(
        floor=f"floor_{metric}",
        marks=_marks(metric),
        metric=is_metric.then(lit(unit)).otherwise(lit(metric)),
        split=is_metric.then(lit(own_split)).otherwise(lit("test")),
        epoch=lit(epoch),
    )
    # Other kinds are null, and last.
    kind = col("score").cast(pl.Enum(SCORE_ORDER), strict=False)
    table = table.sort(kind, "fingerprint", "rank", nulls_last=True, maintain_order=True)
    return add_values(table)


def _marks(metric: str) -> pl.Expr:
    """Return the names of the conditions that hold for a row."""
    # A single run has no interval.
    highest = pl.coalesce("high", "loss")
    facts = pl.struct("vocab", "sequences", loss=highest, floor=f"floor_{metric}")
    has_seeds = col("runs") > 1
    is_program = col("program").is_not_null()
    conditions = {
        "edge": col("edge").list.len() > 0,
        "leaks": col("leaks") != "",
        "missing": col("missing") > 0,
        "unconfirmed": col("confirm") == 0,
        "untuned": col("untuned"),
        "apart": col("apart"),
        "noisy": col("noisy"),
        "fixed": has_seeds & (col("low") == col("high")),
        "impossible": facts.map_elements(lambda row: is_impossible(**row), pl.Boolean),
        "reported": is_program & (col("score") != METRIC),
    }
    marks = [when(condition).then(lit(mark)) for mark, condition in conditions.items()]
    return pl.concat_list(marks).list.drop_nulls()


def _with_accuracies(confirm: DataFrame, events: LazyFrame, study: Fields, epoch: int) -> DataFrame:
    """Add the accuracies of runs, and whether they solve their task: null if nothing says when."""
    tests = events.filter(event="test", epoch=epoch)
    known = tests.select("run", "accuracy", "sequence_accuracy").unique("run")
    confirm = add_columns(confirm, known.collect(), "run")
    bound = float(asked_of(study).get("solved") or 0.0)
    sign = 1
    if is_maximized(study):
        sign = -1
    solved = []
    facts = confirm.select("loss", "accuracy", "ceiling", "status")
    for loss, accuracy, ceiling, status in facts.iter_rows():
        is_task = bound or None not in (accuracy, ceiling)
        if loss is None or not is_task:
            solved.append(None)
        elif status == "diverged":
            solved.append(False)
        else:
            own_loss = sign * loss
            is_solved = solves(own_loss, accuracy, ceiling, bound=bound, sign=sign)
            solved.append(is_solved)
    return confirm.with_columns(solved=Series(solved, dtype=pl.Boolean))


def _point_accuracies(confirm: DataFrame) -> DataFrame:
    """Return one row (point, accuracies, solved) for each point that has one of them."""
    accuracy = col("accuracy")
    solved = col("solved")
    is_known = pl.any_horizontal(accuracy.is_not_null(), solved.is_not_null())
    has_task = solved.count() > 0
    return (
        confirm.filter(is_known)
        .group_by("point")
        .agg(
            pl.mean("accuracy", "sequence_accuracy").round(9),  # sums of parts have no order
            accuracy_low=accuracy.min(),
            accuracy_high=accuracy.max(),
            ceiling=pl.max("ceiling"),
            solved=when(has_task).then(solved.sum()).cast(Int64),
        )
    )


def accuracy_lines(table: DataFrame) -> list[str]:
    """Return what the accuracies of a ranking are, in one line; [] without any."""
    measured = table.drop_nulls("accuracy")
    if measured.is_empty():
        return []
    line = (
        "accuracy: share of scored tokens that the model holds most probable, mean over seeds "
        "(worst to best seed)"
    )
    ceilings = measured["ceiling"].drop_nulls().unique().sort()
    best = " and ".join(f"{ceiling:.1%}" for ceiling in ceilings)
    if best:
        line += f"; no model can exceed {best}"
    return [line]


BASELINE_LABELS = ("unigram count", "Kneser-Ney 5-gram")
"""Labels of the baselines in records of earlier versions, which do not say what is a baseline."""


CHANCES = ("probability_worse", "probability_within", "probability_better")


def add_statistics(part: DataFrame, runs: DataFrame, study: Fields) -> DataFrame:
    """Return the points of one table with the columns of their statistics; NaN becomes null.

    `runs` has the confirm runs of all points; the loss of a diverged one is infinite.
    """
    losses = by_seed(runs, part["point"])
    tuning = tuning_sds(part, study)
    # Statistics are those of losses, of which the lowest is the best.
    if is_maximized(study):
        losses = np.where(np.isinf(losses), inf, -losses)
    is_reference = part["point"] == study.get("reference", "")
    at = int(is_reference.arg_max() or 0)
    is_untuned = untuned(part, study)
    elsewhere = part.get_column("apart", default=Series([False])).to_numpy()
    silent = is_untuned | elsewhere
    family = asked_contrasts(part, study) & ~silent
    sharing = family | silent | is_reference.to_numpy()
    interval = point_intervals(losses, sharing, reference=at)
    rank_low, rank_high = rank_intervals(losses, tuning, family=sharing, reference=at)
    margin = float(study.get("margin", MARGIN))
    paired = losses
    if not is_reference.any():  # a table without the reference has no differences
        paired = np.full_like(losses, nan)
    found = compared(
        paired,
        at,
        family=family,
        silent=silent,
        tuning_sd=tuning,
        looks=read_looks(study.get("looks"), losses.shape[1]),
        margin=margin,
    )
    columns: FieldsDict = {
        "loss": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "rank_low": rank_low,
        "rank_high": rank_high,
        "rank": order(losses, interval.mean),
        "reference": is_reference,
        "untuned": is_untuned,
        "is_baseline": part["point"].is_in(baselines(study)),
        "margin": np.full(len(part), margin),
    }
    columns |= verdict_columns(found)
    for name in CHANCES:  # as a verdict would be
        columns[name] = np.where(elsewhere, nan, columns[name])
    whole = col("rank_low", "rank_high", "seeds_needed", "sign")
    rank = col("rank").rank("min")
    statistics = DataFrame(columns).fill_nan(None)
    statistics = statistics.with_columns(whole.cast(Int64), rank.cast(Int64))
    # Means without the effects of the seeds can have another order.
    low = pl.min_horizontal("rank_low", "rank")
    high = pl.max_horizontal("rank_high", "rank")
    part = part.hstack(statistics).with_columns(
        rank_low=when(col("rank_low") > 0).then(low),
        rank_high=when(col("rank_high") > 0).then(high),
        higher_is_better=False,
    )
    part = add_baseline_columns(part, losses, tuning)
    if is_maximized(study):
        return maximized(part, "ranking")
    return part


def tuning_sds(part: DataFrame, study: Fields) -> Array:
    """Return what the choice of its setting adds to the loss of each point, (P,)."""
    chosen = study.get("chosen", {})
    found = [chosen.get(point, {}).get("tuning_sd") for point in part["point"]]
    return np.array([sd or 0.0 for sd in found])


def verdict_columns(found: Compared) -> FieldsDict:
    """Return the columns of a comparison."""
    # numpy's "" is a row without a verdict, which frames write as null.
    verdict = Series(found.verdict.astype(str), dtype=String)
    return {
        "difference": found.mean,
        "difference_low": found.low,
        "difference_high": found.high,
        "p_raw": found.p_raw,
        "p": found.p,
        "verdict": verdict.replace("", None),
        "sign": found.sign,
        "probability_worse": found.worse,
        "probability_within": found.within,
        "probability_better": found.better,
        "p_diverged": found.p_diverged,
        "seeds_needed": found.seeds_needed,
        "half_corrected": found.half_corrected,
        "needs_tuning": found.needs_tuning,
        "confirmed": found.confirmed,
        "noisy": found.noisy,
    }


def asked_contrasts(part: DataFrame, study: Fields) -> NDArray[np.bool_]:
    """Return the points compared: all but the reference, baselines, leaking and untuned rows."""
    return _honest(part, study) & ~untuned(part, study)


def _honest(part: DataFrame, study: Fields) -> NDArray[np.bool_]:
    outside = baselines(study)
    outside.append(study.get("reference", ""))
    leaks = part["leaks"].fill_null("") != ""
    is_out = leaks | part["point"].is_in(outside)
    return ~is_out.to_numpy()


def untuned(part: DataFrame, study: Fields) -> NDArray[np.bool_]:
    """Return which points have another architecture than the reference, at one untuned setting."""
    is_reference = part["point"] == study.get("reference", "")
    if not is_reference.any():
        return np.zeros(len(part), bool)
    searched = set()
    samples = study["budget"]["samples"]
    for point in study["points"]:
        if samples > 1 and point.get("search", study["search"]):
            searched.add(point["id"])
    # A model of counts has no parameters.
    is_count = (part["parameters"] == 0).fill_null(value=False)
    tuned = part["point"].is_in(searched) | is_count
    names = part["architecture"].fill_null("")
    at = int(is_reference.arg_max() or 0)
    return _honest(part, study) & unfair(names.to_list(), tuned.to_list(), at)


def baselines(study: Fields) -> list[str]:
    """Return the points that the study added as baselines."""
    return [
        point["id"]
        for point in study["points"]
        if point.get("baseline", point["label"] in BASELINE_LABELS)
    ]


def order(losses: Array, mean: Array) -> Array:
    """Return numbers that sort the points: by the share of infinite losses, then by the mean."""
    known = ~np.isnan(losses)
    runs = known.sum(1)
    lost = np.isposinf(losses).sum(1)
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return np.full(len(losses), nan)
    span = np.ptp(finite) + 1
    below = np.where(lost == runs, finite.max(), mean)
    with np.errstate(invalid="ignore"):  # NaN without a run
        return below + lost / runs * runs.max() * span


FIVE_GRAM_NAME = "Kneser-Ney 5-gram"
FIVE_GRAM = {
    "name": "ngram_count",
    "order": 5,
    "smoothing": "kneser_ney",
}
"""Fields of the 5-gram's model config; the point may have any label."""
TEXT_BASELINE_NAME = "Kneser-Ney n-gram"
"""Label of the baseline of a contiguous text."""
TEXT_BASELINE = FIVE_GRAM | {"order": 0}
LOSES = "loses"
WINS = "wins"
UNDECIDED = "undecided"
ONE_SEED = "one seed"
BASELINE_COLUMNS = {
    "kn5": String,
    "kn5_difference": Float64,
    "kn5_difference_low": Float64,
    "kn5_difference_high": Float64,
}
"""The columns that `add_baseline_columns` adds; null for rows that are not compared."""


def add_baseline_columns(table: DataFrame, losses: Array, tuning_sd: Array) -> DataFrame:
    """Add the comparison with the baseline of the same table to its points.

    A point whose model leaks may lose, but not win. The losses (P, S) and `tuning_sd` (P,) are
    those of `compared`.
    """
    models = [json.loads(text or "{}") for text in table["model"]]
    at = _baseline_of(models)
    if at is None:
        missing = DataFrame(schema=BASELINE_COLUMNS)
        return table.hstack(missing.clear(len(table)))
    names = [model.get("name", "") for model in models]
    is_compared = Series(names) != FIVE_GRAM["name"]
    family = is_compared.to_numpy()
    found = compared(losses, at, family=family, tuning_sd=tuning_sd, margin=0.0)
    numbers = DataFrame(
        {
            "kn5_difference": found.mean,
            "kn5_difference_low": found.low,
            "kn5_difference_high": found.high,
        }
    )
    sign = Series(found.sign)
    word = (
        when(col("kn5_difference").is_null()).then(None)
        .when(sign > 0).then(lit(LOSES))
        .when(table["leaks"] != "").then(None)
        .when(sign < 0).then(lit(WINS))
        .when(col("kn5_difference_low").is_null()).then(lit(ONE_SEED))
        .otherwise(lit(UNDECIDED))
    )  # fmt: skip
    columns = numbers.fill_nan(None).select(word.alias("kn5"), pl.all())
    shown = columns.select(when(is_compared).then(pl.all()))
    return table.hstack(shown)


def _baseline_of(models: Sequence[Fields]) -> int | None:
    """Return the place of the baseline of a table; that of a text comes before the 5-gram."""
    for fields in (TEXT_BASELINE, FIVE_GRAM):
        for i, model in enumerate(models):
            if fields.items() <= model.items():
                return i
    return None


def baseline_name(frame: DataFrame) -> str:
    """Return what the rows of a table are compared with."""
    is_of_text = frame["label"].str.ends_with(TEXT_BASELINE_NAME)
    if is_of_text.any():
        return TEXT_BASELINE_NAME
    return FIVE_GRAM_NAME
