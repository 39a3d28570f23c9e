"""Which trials of Ray Tune are tuning, and which are seeds of one setting.

The trials of a search differ in their configs, so their spread is no noise of seeds. Seeds of a
variant are the trials of its only setting that has two or more; all its other trials are tuning.
"""

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import polars as pl

from lmzoo.base.errors import UserError

TUNING = "tuning"
TRIAL = "trial_id"
CONFIG = re.compile(r"config[./]")


def without_tuning(
    frame: pl.DataFrame,
    rows: pl.DataFrame,
    named: Collection[str],
    is_seed: Callable[[str], object],
    more: str,
) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows, of which those of tuning have that reason, and a note if there are some.

    The columns `named`, and seeds, are no settings; `more` says how seeds are trained. A
    `UserError` says that there are no seeds, or those of several settings.
    """
    if TRIAL not in frame.columns:
        return rows, []
    configs = [c for c in frame.columns if CONFIG.match(c) and c not in named]
    names = [c for c in configs if not is_seed(c)]
    counts = rows["why"] == ""
    trials = frame.select(TRIAL, *names).with_columns(rows["variant"]).filter(counts)
    trials = trials.unique(TRIAL, keep="last", maintain_order=True)  # PBT changes a config
    values = trials.group_by("variant").n_unique()
    searched = [name for name in names if (values[name] > 1).any()]
    if not searched:
        return rows, []
    settings = trials.group_by("variant", *searched, maintain_order=True).agg(TRIAL)
    repeated = settings.filter(pl.col(TRIAL).list.len() > 1)
    what = f"several values of {', '.join(searched)} within a variant"
    if repeated.is_empty():
        raise UserError(f"the {len(trials)} trials are tuning, not seeds: {what}; {more}")
    if repeated["variant"].is_duplicated().any():
        raise UserError(f"{what}, and several settings have seeds; add --by {searched[0]}")
    seeds = repeated[TRIAL].explode()
    is_tuning = counts & ~frame[TRIAL].is_in(seeds.implode())
    rows = rows.with_columns(
        why=pl.when(is_tuning).then(pl.lit(TUNING)).otherwise("why"),
        run=pl.when(~is_tuning).then("run"),
    )
    tuning = len(trials) - len(seeds)
    return rows, [f"{tuning} trials are tuning ({what}), {len(seeds)} are seeds; {more}"]


def confirming(results: object, by: Sequence[str], metric: str, mode: str) -> str:
    """Return which call trains seeds of the best settings."""
    grid = "RESULTS"
    if isinstance(results, str | Path):
        grid = f"tune.Tuner.restore({str(results)!r}, train).get_results()"
    names = [CONFIG.sub("", name) for name in by]
    call = f"lmzoo.tune.confirm({grid}, train, by={names}, metric={metric!r}, mode={mode!r})"
    return f"{call} trains seeds of the best settings"
