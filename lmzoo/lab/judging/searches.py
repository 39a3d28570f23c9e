"""Which trials of Ray Tune are tuning, and which are seeds of one setting.

The trials of a search differ in their configs, so their spread is no noise of seeds. Seeds of a
variant are the trials of its only setting that has two or more; all its other trials are tuning.
"""

import re
from collections.abc import Collection, Sequence

import polars as pl

from lmzoo.base.errors import UserError

TUNING = "tuning"
TRIAL = "trial_id"
CONFIG = re.compile(r"config[./]")


def without_tuning(
    frame: pl.DataFrame, rows: pl.DataFrame, by: Sequence[str], seeds: Collection[str], more: str
) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows, of which those of tuning have that reason, and a note if there are some.

    `seeds` are the other columns of configs that are no settings; `more` says how seeds are
    trained. A `UserError` says that there are no seeds, or those of several settings.
    """
    is_setting = CONFIG.match
    names = [c for c in frame.columns if is_setting(c) and c not in {*by, *seeds}]
    if TRIAL not in frame.columns or not names:
        return rows, []
    counts = rows["why"] == ""
    trials = frame.select(TRIAL, *names).with_columns(rows["variant"]).filter(counts)
    trials = trials.group_by(TRIAL, maintain_order=True).last()  # PBT changes a config
    values = trials.group_by("variant").agg(pl.col(names).n_unique()).max()
    searched = [name for name in names if (values[name][0] or 0) > 1]
    if not searched:
        return rows, []
    settings = trials.group_by("variant", *searched, maintain_order=True).agg(TRIAL)
    repeated = settings.filter(pl.col(TRIAL).list.len() > 1)
    what = f"several values of {', '.join(searched)} within a variant"
    if repeated.is_empty():
        raise UserError(f"the {len(trials)} trials are tuning, not seeds: {what}; {more}")
    if repeated["variant"].n_unique() < len(repeated):
        options = " ".join(f"--by {name}" for name in searched)
        raise UserError(f"{what}, and several settings have seeds; add {options}")
    found = repeated[TRIAL].explode()
    is_tuning = counts & ~frame[TRIAL].is_in(found.implode())
    note = f"{len(trials) - len(found)} trials are tuning ({what}), {len(found)} are seeds; {more}"
    rows = rows.with_columns(
        why=pl.when(is_tuning).then(pl.lit(TUNING)).otherwise("why"),
        run=pl.when(~is_tuning).then("run"),
    )
    return rows, [note]


def confirming(results: object, by: Sequence[str], metric: str, *, higher: bool) -> str:
    """Return which call trains seeds of the best settings."""
    grid = "RESULTS"
    if isinstance(results, str) or hasattr(results, "joinpath"):
        grid = f"tune.Tuner.restore({str(results)!r}, train).get_results()"
    mode = "min"
    if higher:
        mode = "max"
    names = [CONFIG.sub("", name) for name in by]
    call = f"lmzoo.tune.confirm({grid}, train, by={names}, metric={metric!r}, mode={mode!r})"
    return f"{call} trains seeds of the best settings"
