"""Plan a study from a pilot: seeds and hours, or "cannot be decided with this".

The pilot says how much a difference varies between seeds. It is a study of lmzoo (a folder or a
file of records) or a table of results. Without a pilot, the records of a similar study serve.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars import DataFrame, Float64, Int64, col

from lmzoo.base.arguments import called, number, whole
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict, Texts
from lmzoo.base.printed import duration
from lmzoo.lab.analysis.caveats import longer_training, longer_words
from lmzoo.lab.analysis.columns import Column, text_table
from lmzoo.lab.analysis.formatting import MISSING
from lmzoo.lab.analysis.load import confirm_runs, load_study
from lmzoo.lab.analysis.ranking import (
    TABLE_KEYS,
    asked_contrasts,
    rank_points,
    tuning_sds,
    with_lost,
)  # fmt: skip
from lmzoo.lab.analysis.render import Report, render
from lmzoo.lab.analysis.seeds import by_seed
from lmzoo.lab.judging.account import Question
from lmzoo.lab.judging.texts import SAME
from lmzoo.lab.judging.verdicts import judged
from lmzoo.lab.statistics.compared import MOST_SEEDS, POWER, reference_seeds
from lmzoo.lab.statistics.contrasts import pairs_pay
from lmzoo.lab.statistics.intervals import Array
from lmzoo.lab.statistics.power import Plan, planned_seeds
from lmzoo.lab.store.records import find_study


class Pilot(NamedTuple):
    """What a pilot measured of P points."""

    labels: list[str]
    losses: Array
    """(P, S); infinity for a diverged run, NaN for a missing one."""
    reference: int
    asked: np.ndarray
    """The points that are compared, bool (P,)."""
    tuning_sd: Array
    paired: bool
    seconds: Array
    """Of one run of each point, (P,); NaN if it is not known."""
    account: Mapping[str, int] = MappingProxyType({})
    """What became of the rows of results."""
    notes: Texts = ()
    """What is doubtful about them."""
    unit: float = 1.0
    """By which the losses are divided."""


def is_study(path: Path) -> bool:
    """Return whether a path is a study of lmzoo: a folder, or a file of records."""
    if path.suffix == ".parquet" and path.is_file():
        try:
            columns = set(pl.read_parquet_schema(path))
            return columns == {"folder", "file", "content"}
        except pl.exceptions.PolarsError:
            return False
    return (path / "study.json").exists()


def pilot_of_study(path: Path) -> Pilot:
    """Return the pilot that a study of lmzoo is; a `UserError` if its reference has no loss."""
    folder = load_study(path)
    study = folder.study
    frame = rank_points(folder.runs, folder.events, study)
    reference = frame.filter(point=study.get("reference", ""))
    if reference.is_empty():
        raise UserError(f"study {path} has no reference with a loss; a plan needs one")
    # Only points of the reference's table have a difference to it.
    home = reference.select(TABLE_KEYS)
    part = frame.join(home, on=TABLE_KEYS, how="semi", maintain_order="left")
    confirm, _ = confirm_runs(folder.runs, folder.events, study, "token")
    losses = by_seed(with_lost(confirm), part["point"])
    points = part["point"].to_list()
    at = points.index(reference["point"].item(0))
    asked = asked_contrasts(part, study)
    seconds = part["seconds"].cast(Float64)
    training = longer_training(folder)
    notes: Texts = ()
    if training.epochs > study["budget"]["epochs"]:
        # Longer training may move the differences, whatever the number of seeds.
        notes = (longer_words(folder, training, frame),)
    return Pilot(
        labels=part["label"].to_list(),
        losses=losses,
        reference=at,
        asked=asked,
        tuning_sd=tuning_sds(part, study),
        # As `judge` would pair them.
        paired=pairs_pay(losses, at, asked),
        seconds=seconds.fill_null(math.nan).to_numpy(),
        notes=notes,
    )


def pilot_of_results(results: Any, question: Question) -> Pilot:
    """Return the pilot in a table of results; a single variant stands for two that vary as it."""
    found = judged(results, question)
    losses = found.losses
    values = losses.values
    labels = losses.variants
    paired = losses.paired
    if len(labels) == 1:
        values = np.repeat(values, 2, axis=0)
        labels = [labels[0], "another"]
        # Nothing says that another variant would share its seeds.
        paired = False
    points = len(labels)
    return Pilot(
        labels=labels,
        losses=values,
        reference=losses.base,
        asked=np.arange(points) != losses.base,
        tuning_sd=np.zeros(points),
        paired=paired,
        seconds=np.full(points, math.nan),
        account=found.account.counts(),
        notes=found.warnings,
        unit=losses.unit,
    )


def _pilot(pilot: Any, *, by: Any = None, metric: str | None = None, **columns: Any) -> Pilot:
    """Return the pilot in a study, by its path or its name, or in a table of results."""
    name = "the pilot"
    study = None
    if isinstance(pilot, str | Path):
        name = pilot
        study = Path(pilot)
    # With `by`, a name is that of a table, not of a study in `runs`.
    if by is None and (study or hasattr(pilot, "points")):
        study = find_study(pilot)
    if study and is_study(study):
        return pilot_of_study(study)
    if by is None or metric is None:
        raise UserError(f"{name} is no study; a table of results needs --by and --metric")
    question = Question(by=by, metric=metric, **columns)
    return pilot_of_results(pilot, question)


@called
def plan(
    pilot: Any,
    effect: float,
    power: float = POWER,
    *,
    contrasts: int | None = None,
    minutes: float | None = None,
    by: str | Sequence[str] | None = None,
    metric: str | None = None,
    **columns: Any,
) -> FieldsDict:
    """Return how many seeds show a difference of a given size, and what they cost.

    Args:
        pilot: A `Study`, its folder, its file of records or its name; or results, as for
            `judge`.
        effect: The difference to be shown, in the metric's unit.
        power: Probability that it is shown, if it is there.
        contrasts: Number of contrasts of the new study; None: those of the pilot.
        minutes: Of one run, for results.
        by: The columns of the variant, for results.
        metric: The column of the metric.
        **columns: `seed`, `reference`, `paired` and others, as `judge` has them.

    Returns:
        What `lmzoo plan --json` prints: `rows`, one for each contrast, with `point`, `sd` of a
        difference, `seeds` (None: cannot be decided), `least` and `most`, and `hours`; and
        `answer` and `warnings`, which say it in words.

    Raises:
        UserError: There is no such pilot, it has no two seeds, or a number is out of range.
    """
    columns |= {"contrasts": contrasts, "minutes": minutes, "by": by, "metric": metric}
    report = plan_report(pilot, effect, power, **columns)
    return json.loads(render(report, "json"))


def plan_report(
    pilot: Any,
    effect: float,
    power: float,
    *,
    contrasts: int | None = None,
    minutes: float | None = None,
    **columns: Any,
) -> Report:
    """Return the report of `plan`."""
    effect = number("effect", effect)
    if effect == 0:
        raise UserError(f"effect {effect} is not a positive number; give one, as 0.02")
    power = number("power", power)
    if not 0 < power < 1:
        raise UserError(f"power {power} is not between 0 and 1; give one, as 0.8")
    known = _pilot(pilot, **columns)
    count = int(known.asked.sum())
    if contrasts is not None:
        count = whole("contrasts", contrasts, 1)
    if minutes is not None:
        seconds = 60 * number("minutes", minutes)
        known = known._replace(seconds=np.full_like(known.seconds, seconds))

    def planned(tuning_sd: Any) -> Plan:
        return planned_seeds(
            known.losses,
            known.reference,
            effect / known.unit,
            power,
            family=known.asked,
            tuning_sd=tuning_sd,
            paired=known.paired,
            count=contrasts,
        )

    found = planned(known.tuning_sd)
    if np.isnan(found.sd).all():
        raise UserError("the pilot has no two seeds of two variants; run two seeds of each first")
    finite = [set(own[np.isfinite(own)]) for own in known.losses]
    # From equal results of all seeds, a plan would invent the noise.
    if max(map(len, finite)) < 2:
        raise UserError(f"the pilot shows no noise: {SAME}; train it with other seeds")
    # How many seeds the reference has for one of a point; 1000 hides the rounding.
    share = reference_seeds(1000, count) / 1000
    of_reference = share * known.seconds[known.reference]
    shown = {
        "point": known.labels,
        "sd": found.sd * known.unit,
        "seeds": found.seeds,
        "least": found.least,
        "most": found.most,
        "hours": found.seeds * (known.seconds + of_reference) / 3600,
        "chance": found.chance,
        # A plan without the error of the tuning tells whether only that hides a difference.
        "seeds_if_tuned": planned(0.0).seeds,
    }
    is_shown = known.asked & ~np.isnan(found.sd)
    frame = DataFrame(shown).fill_nan(None).filter(is_shown)
    whole_numbers = col("seeds", "least", "most", "seeds_if_tuned")
    frame = frame.with_columns(whole_numbers.cast(Int64))
    text = text_table("each contrast by itself", frame.to_dicts(), COLUMNS)
    how = "by the means"
    if known.paired:
        how = "paired by seed"
    summary = tuple(_summary(known, frame, power, count))
    return Report(
        heading=summary[1:],
        tables=(text,),
        legend=(),
        frame=frame,
        question=f"To show a difference of {effect:g} from {known.labels[known.reference]!r} with "
        f"a probability of {power:g}, {how}:",
        answer=summary[0],
        warnings=tuple(_undecidable(frame)) + known.notes,
        account=dict(known.account),
    )


def _range(row: Fields, _: str) -> str:
    if not row["least"]:
        return ""
    return f"{row['least']} to {row['most'] or 'more'}"


def _time(row: Fields, _: str) -> str:
    if not row["hours"]:
        return MISSING
    return duration(3600 * row["hours"])


COLUMNS = (
    Column("point", "", "point", lambda row, _: row["point"], is_text=True),
    Column("sd", "", "sd of one difference", ".3g"),
    Column("seeds", "", "seeds in all", lambda row, _: str(row["seeds"] or "cannot be decided")),
    Column("least", "", "80 % range", _range),
    Column("hours", "", "time of both", _time),
)


def _summary(pilot: Pilot, frame: DataFrame, power: float, count: int) -> Iterator[str]:
    """Yield the answer, then what it costs and what may cost less."""
    known = frame.drop_nulls("seeds")
    if known.is_empty():
        yield "No contrast can be decided with this."
        return
    name = pilot.labels[pilot.reference]
    most = max(known["seeds"])
    own = reference_seeds(most, count)
    yield (
        f"{most} seeds in all of each point, and {own} of {name!r}, decide every row of the table "
        "that shows a number."
    )
    chance = known["chance"].max()
    yield f"With a probability of {chance:.2g}, the true power of some row is below {power:g}."
    points = [pilot.labels.index(point) for point in known["point"]]
    of_points = most * pilot.seconds[points]
    of_reference = own * pilot.seconds[pilot.reference]
    each = np.append(of_points, of_reference)
    if not np.isnan(each).any():
        runs = most * len(points) + own
        time = duration(float(each.sum()))
        yield (
            f"{len(each)} points, {runs} runs: {time}, one run after the other; tuning is not "
            "included"
        )


def _undecidable(frame: DataFrame) -> Iterator[str]:
    undecidable = frame.filter(col("seeds").is_null())
    for row in undecidable.to_dicts():
        why = f"more than {MOST_SEEDS:,} seeds"
        if row["seeds_if_tuned"] is not None:
            why = "the choice of its setting is too uncertain; more tuning runs first"
        yield f"cannot be decided with this: {row['point']} ({why})"
