"""Which settings differ between runs of one variant, as in a search, and which trials are tuning.

The trials of a search of Ray Tune differ in their configs, so their spread is no noise of seeds.
Seeds of a variant are the trials of its only setting that has two or more; all its other trials
are tuning. In other tables, settings that differ are named.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polars import DataFrame, col, lit, when

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import KNOWN_NAMES, some

if TYPE_CHECKING:
    from lmzoo.lab.judging.account import Question

TUNING = "tuning"
TRIAL = "trial_id"
CONFIG = re.compile(r"config[./]")
SETTING = re.compile(r"(config|params|hparams)[./].*", re.IGNORECASE)
"""Columns of trackers that hold what a run was given."""
SEED_NAME = re.compile(KNOWN_NAMES["seeds"], re.IGNORECASE)
DIFFER = "settings differ between runs of one variant: "
"""The beginning of a note that makes all differences doubtful."""


def settings_of(frame: DataFrame, named: Collection[str]) -> list[str]:
    """Return the columns of settings that a question does not name; seeds are none."""
    # Seeds are meant to differ between runs.
    return [
        name
        for name in filter(SETTING.fullmatch, frame.columns)
        if name not in named and not SEED_NAME.fullmatch(name)
    ]


def _searched(runs: DataFrame, settings: Sequence[str]) -> list[str]:
    """Return the settings that have several values within a variant."""
    known = col(settings).drop_nulls()
    values = runs.group_by("variant").agg(known.n_unique())
    return [name for name in settings if (values[name] > 1).any()]


def differing(frame: DataFrame, runs: DataFrame, settings: Sequence[str]) -> Iterator[str]:
    """Yield a note that names the settings in which runs of one variant differ."""
    given = frame[runs["row"]].select(settings)
    own = runs.select("variant").with_columns(given)
    found = _searched(own, settings)
    if found:
        yield f"{DIFFER}{some(found)}; a difference may be theirs"


def without_tuning(
    frame: DataFrame, rows: DataFrame, settings: Sequence[str], more: str
) -> tuple[DataFrame, list[str]]:
    """Return the rows, of which those of tuning have that reason, and a note if there are some.

    `more` says how seeds are trained. A `UserError` says that there are no seeds, or those of
    several settings.
    """
    # Only Ray Tune says which runs are trials of a search.
    if TRIAL not in frame.columns:
        return rows, []
    counts = rows["why"] == ""
    trials = frame.select([TRIAL] + list(settings))
    trials = trials.with_columns(rows["variant"]).filter(counts)
    trials = trials.unique(TRIAL, keep="last", maintain_order=True)  # PBT changes a config
    searched = _searched(trials, settings)
    if not searched:
        return rows, []
    by_setting = trials.group_by("variant", col(searched), maintain_order=True)
    several = col(TRIAL).list.len() > 1
    repeated = by_setting.agg(TRIAL).filter(several)
    what = f"several values of {', '.join(searched)} within a variant"
    if repeated.is_empty():
        raise UserError(f"the {len(trials)} trials are tuning, not seeds: {what}; {more}")
    # Seeds of two settings of one variant are two variants.
    if repeated["variant"].is_duplicated().any():
        raise UserError(f"{what}, and several settings have seeds; add --by {searched[0]}")
    seeds = repeated[TRIAL].explode()
    is_tuning = counts & ~frame[TRIAL].is_in(seeds.implode())
    rows = rows.with_columns(
        why=when(is_tuning).then(lit(TUNING)).otherwise("why"),
        # A trial of tuning is no run of its variant, so nothing is missing in its place.
        run=when(~is_tuning).then("run"),
    )
    tuning = len(trials) - len(seeds)
    return rows, [f"{tuning} trials are tuning ({what}), {len(seeds)} are seeds; {more}"]


def confirming(results: object, question: "Question") -> str:
    """Return which call trains seeds of the best settings."""
    grid = "RESULTS"
    if isinstance(results, str | Path):
        grid = f"tune.Tuner.restore({str(results)!r}, train).get_results()"
    mode = "min"
    if question.higher_is_better:
        mode = "max"
    by = [CONFIG.sub("", name) for name in question.columns]
    call = f"lmzoo.tune.confirm({grid}, train, by={by}, metric={question.metric!r}, mode={mode!r})"
    return f"{call} trains seeds of the best settings"
