"""Effects and interactions as text: a table of switches and a table of pairs for each cell."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from lmzoo.analysis.records.load import StudyFolder, load_study
from lmzoo.analysis.records.mutants import Mutants, read_mutants
from lmzoo.analysis.records.units import UNITS, TextSizes, metric_of, unit_per_nat
from lmzoo.analysis.tables.columns import Column, scaled, shown_columns, text_table
from lmzoo.analysis.tables.effects import estimate_effects
from lmzoo.analysis.text.formatting import MISSING, format_number
from lmzoo.analysis.text.render import Report, TextTable
from lmzoo.statistics.factorial_regression import explained

SINGLE = Column("point", None, "point", lambda row, _: row["point"] or MISSING, is_text=True)
"""The point that has this switch only."""


def study_effects(
    path: Path,
    *,
    unit: str = "token",
    figure: Path | None = None,
    measured: TextSizes | None = None,
) -> Report:
    """Return the effects of the switches in the study in folder `path`.

    Args:
        path: the study's folder.
        unit: one of `UNITS` but `ppl`.
        figure: also write the heat maps to this .png, .svg or .html file.
        measured: sizes of the test text of corpora; they replace those of the records.

    Raises:
        UserError: The study has no complete mutants yet, or a name is unknown.
    """
    metric = metric_of(unit, linear=True)
    folder = load_study(path)
    factor = unit_per_nat(folder.runs, folder.events, unit, measured)
    cells = read_mutants(folder.path, folder, metric)
    frames = [scaled(estimate_effects(cell), "effects", factor, unit) for cell in cells]
    if figure is not None:
        from lmzoo.analysis.charts.heat_map import (  # altair is slow to import
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
            f"intervals over {seeds} seeds; p: moderated t-test with Holm's correction",
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
        "regression: the same by least squares of the two-way model in ±1 coding",
    ]
    for cell, frame in zip(cells, frames, strict=True):
        losses = cell.losses.mean(1)
        alone, with_pairs = (
            format_number(explained(cell.patterns, losses, pairs=pairs), ".0%")
            for pairs in (False, True)
        )
        lines.append(
            f"{cell.cell}: switches alone explain {alone} of the variance between mutants, "
            f"switches and pairs {with_pairs}"
        )
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
