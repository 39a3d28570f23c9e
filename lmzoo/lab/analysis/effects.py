"""Estimate the effect of each switch and the interaction of each pair of switches.

    effect       mean change of the loss when the switch is on, over all pairs of mutants
    alone        the same in the wild type only
    interaction  how much the second switch changes the effect of the first, over all squares
    given        the effect of the first while the second is off (intact), and while it is on
                 (thrown)

A seed is a block: all mutants of one seed share the order of the data and all initial weights they
have in common. So each estimate is computed within each seed. Nothing is assumed about the
correlation of losses within a seed.

The interval is that of a mean over seeds, with the variance Σ_p w_p² τ_p² of the tuning added: w
are the weights of the estimate, τ_p is the standard deviation of a mutant's loss over repetitions
of the tuning. Few seeds say little about the variance of one estimate, so the estimates of one kind
share it as far as they are alike: their variances over seeds, divided by Σ_p w_p² (`noise.py`).
Effects of switches and of pairs are different kinds, because a switch may change with the seed. p
is of the same t-test, with Holm's correction over all effects and interactions of one cell.
"""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special

from lmzoo.lab.analysis.columns import Column, names, scaled, shown_columns, text_table
from lmzoo.lab.analysis.formatting import MISSING
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.mutants import Mutants, read_mutants
from lmzoo.lab.analysis.render import Report, TextTable
from lmzoo.lab.analysis.units import UNITS, metric_of, unit_per_nat
from lmzoo.lab.statistics.contrasts import holm
from lmzoo.lab.statistics.factorial import cubes, effect, effect_alone, effect_given, interaction
from lmzoo.lab.statistics.intervals import LEVEL, Array, mean_and_error
from lmzoo.lab.statistics.noise import LEAST_POINTS, half_width, posterior, tail

ESTIMATES = ("effect", "alone", "given_intact", "given_thrown")


def estimate_effects(mutants: Mutants) -> pl.DataFrame:
    """Return all effects and interactions of one cell's switches; null where undefined.

    `second` is null for a single switch; for a pair, `effect` is the interaction.
    """
    terms = effect_terms(mutants)
    rows = [_contrasts(mutants, term) for term in terms]
    weights = {name: np.stack([row[name] for row in rows]) for name in ESTIMATES}
    is_pair = np.array([len(term) == 2 for term in terms])
    estimates = {name: _estimates(w, mutants, is_pair) for name, w in weights.items()}
    p = estimates["effect"].p
    columns: dict[str, Any] = {
        "cell": [mutants.cell] * len(rows),
        "first": [mutants.switches[term[0]] for term in terms],
        "second": [mutants.switches[term[1]] if len(term) == 2 else None for term in terms],
        "count": [len(cubes(mutants.patterns, term)) for term in terms],
        "p_raw": p,
        "p": holm(p),
    }
    for name, (mean, low, high, _) in estimates.items():
        columns |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return pl.DataFrame(columns).fill_nan(None).select(names("effects"))


class _Estimates(NamedTuple):
    """Estimates of one kind with intervals and the p-values of zero, (E,) each."""

    mean: Array
    low: Array
    high: Array
    p: Array


def _estimates(weights: Array, mutants: Mutants, is_pair: NDArray[np.bool_]) -> _Estimates:
    """Return the estimates with these weights (E, P) of the mutants' losses."""
    n, mean, error = mean_and_error(weights @ mutants.losses)
    scale = (weights**2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance, freedom = error**2 * n / scale, n - 1
    of_seeds, of_tuning = variance * scale / n, weights**2 @ mutants.tuning_sd**2
    error = np.sqrt(of_seeds + of_tuning)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(of_tuning > 0, freedom * (1 + of_tuning / of_seeds) ** 2, freedom)
        p = 2 * special.stdtr(freedom, -np.where(error > 0, np.abs(mean) / error, np.nan))
    half = special.stdtrit(freedom, (1 + LEVEL) / 2) * error
    for kind in (is_pair, ~is_pair):
        kind = kind & (variance > 0)
        if kind.sum() < LEAST_POINTS:
            continue
        possible, weight, _ = posterior(variance[kind], freedom[kind])
        sd = np.sqrt(possible * (scale / n)[kind, None] + of_tuning[kind, None])
        normal = np.full(sd.shape, np.inf)
        p[kind] = 2 * tail(weight, sd, normal, np.abs(mean[kind]))
        half[kind] = half_width(weight, sd, normal, LEVEL)
    return _Estimates(mean, mean - half, mean + half, p)


def effect_terms(mutants: Mutants) -> list[tuple[int, ...]]:
    """Return (i,) for every switch, then (i, j) for every pair."""
    switches = range(len(mutants.switches))
    return [*((i,) for i in switches), *combinations(switches, 2)]


def _contrasts(mutants: Mutants, term: tuple[int, ...]) -> dict[str, Array]:
    """Return the weights (P,) of each estimate of a term; NaN where it is undefined."""
    patterns = mutants.patterns
    row = dict.fromkeys(ESTIMATES, np.full(len(patterns), np.nan))
    if len(term) == 1:
        return {**row, "effect": effect(patterns, *term), "alone": effect_alone(patterns, *term)}
    return {
        **row,
        "effect": interaction(patterns, *term),
        "given_intact": effect_given(patterns, *term, on=False),
        "given_thrown": effect_given(patterns, *term, on=True),
    }


SINGLE = Column("point", None, "point", lambda row, _: row["point"] or MISSING, is_text=True)
"""The point that has this switch only."""


def study_effects(
    path: Path,
    *,
    unit: str = "token",
    figure: Path | None = None,
) -> Report:
    """Return the effects of the switches in the study in folder `path`.

    Raises:
        UserError: The study has no complete mutants yet, or a name is unknown.
    """
    metric = metric_of(unit, linear=True)
    folder = load_study(path)
    factor = unit_per_nat(folder.runs, folder.events, unit)
    cells = read_mutants(folder.path, folder, metric)
    frames = [scaled(estimate_effects(cell), "effects", factor, unit) for cell in cells]
    if figure is not None:
        from lmzoo.lab.analysis.report.heat_map import (  # altair is slow to import
            heat_maps,
            save_figure,
        )

        save_figure(heat_maps(frames, folder.study["question"]), figure)
    return effect_report(folder, cells, frames, unit)


def effect_report(
    folder: StudyFolder, cells: Sequence[Mutants], frames: Sequence[pl.DataFrame], unit: str
) -> Report:
    """Return the report of the mutants of each cell and their effects."""
    seeds = cells[0].losses.shape[1]
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: {UNITS[unit]}, test at epoch "
            f"{folder.study['budget']['epochs']}; changes of the loss (positive is worse); 95 % "
            f"intervals over {seeds} seeds; p: of an effect of 0, with Holm's correction",
        ),
        tables=tuple(
            table
            for cell, frame in zip(cells, frames, strict=True)
            for table in (_switches(cell, frame), _pairs(cell, frame))
            if table.rows
        ),
        legend=_legend(cells, frames),
        frame=pl.concat(frames),
    )


def _switches(cell: Mutants, frame: pl.DataFrame) -> TextTable:
    single = {
        cell.switches[pattern.argmax()]: label
        for label, pattern in zip(cell.labels, cell.patterns, strict=True)
        if pattern.sum() == 1
    }
    own = frame.filter(pl.col("second").is_null()).sort("effect").to_dicts()
    rows = [{**row, "point": single.get(row["first"])} for row in own]
    title = f"{cell.cell}: effects of {len(cell.switches)} switches in {len(cell.labels)} mutants"
    switch, *others = shown_columns("effects", "switches")
    return text_table(title, rows, (switch, SINGLE, *others), whole=True)


def _pairs(cell: Mutants, frame: pl.DataFrame) -> TextTable:
    known = frame.filter(pl.col("second").is_not_null() & (pl.col("count") > 0))
    rows = known.sort(pl.col("effect").abs(), descending=True).to_dicts()
    title = f"{cell.cell}: interactions, the strongest first"
    return text_table(title, rows, shown_columns("effects", "pairs"), whole=True)


def _legend(cells: Sequence[Mutants], frames: Sequence[pl.DataFrame]) -> tuple[str, ...]:
    lines = [
        "effect: mean over all pairs of mutants that differ in this switch only",
        "interaction: how much the second switch changes the effect of the first, mean over all "
        "squares",
    ]
    for cell, frame in zip(cells, frames, strict=True):
        undefined = frame.filter(pl.col("second").is_not_null() & (pl.col("count") == 0))
        if len(undefined):
            pairs = ", ".join(f"{r['first']} × {r['second']}" for r in undefined.to_dicts())
            lines.append(f"{cell.cell}: no squares, so no interaction: {pairs}")
        if cell.incomplete:
            lines.append(f"{cell.cell}: left out, a seed is missing: {_first(cell.incomplete)}")
    return tuple(lines)


def _first(labels: Sequence[str], count: int = 8) -> str:
    rest = f" and {len(labels) - count} more" if len(labels) > count else ""
    return "; ".join(labels[:count]) + rest
