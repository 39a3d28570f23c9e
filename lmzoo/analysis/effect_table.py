"""What effects say, in words: a sheet of switches and a sheet of pairs for each cell."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from lmzoo.analysis.formatting import mean, number, p_value
from lmzoo.analysis.load import Folder
from lmzoo.analysis.mutants import Mutants
from lmzoo.analysis.regression import explained
from lmzoo.analysis.render import Report, Sheet


def effect_report(
    folder: Folder, cells: Sequence[Mutants], frames: Sequence[pl.DataFrame], metric: str
) -> Report:
    """The report of a study's effects."""
    seeds = cells[0].losses.shape[1]
    return Report(
        heading=(
            folder.study["question"],
            f"{folder.study['name']}: {metric} loss in nats per token, test at epoch "
            f"{folder.study['budget']['epochs']}; changes of the loss, plus is worse; 95 % "
            f"intervals over {seeds} seeds; p: t-test over seeds, after Holm",
        ),
        sheets=tuple(
            sheet
            for cell, frame in zip(cells, frames, strict=True)
            for sheet in (_switches(cell, frame), _pairs(cell, frame))
            if sheet.rows
        ),
        legend=_legend(cells, frames),
        frame=pl.concat(frames),
    )


def _switches(cell: Mutants, frame: pl.DataFrame) -> Sheet:
    named = {cell.switches[p.argmax()]: label for label, p in _single(cell)}
    rows = [
        (
            row["first"],
            named.get(row["first"], "—"),
            _estimate(row, "effect"),
            str(row["count"]),
            _estimate(row, "regression"),
            _estimate(row, "alone"),
            p_value(row["p"]),
        )
        for row in frame.filter(pl.col("second").is_null()).sort("effect").to_dicts()
    ]
    header = ("switch", "as a point", "effect", "pairs", "regression", "in the wild type", "p")
    title = f"{cell.cell}: effects of {len(cell.switches)} switches in {len(cell.labels)} mutants"
    return Sheet(title, header, rows, frozenset(header[:2]))


def _pairs(cell: Mutants, frame: pl.DataFrame) -> Sheet:
    known = frame.filter(pl.col("second").is_not_null() & (pl.col("count") > 0))
    rows = [
        (
            f"{row['first']} × {row['second']}",
            _estimate(row, "effect"),
            str(row["count"]),
            _estimate(row, "regression"),
            _estimate(row, "given_intact"),
            _estimate(row, "given_thrown"),
            p_value(row["p"]),
        )
        for row in known.sort(pl.col("effect").abs(), descending=True).to_dicts()
    ]
    header = (
        *("pair", "interaction", "squares", "regression"),
        *("first, second intact", "first, second thrown", "p"),
    )
    title = f"{cell.cell}: interactions, the strongest first"
    return Sheet(title, header, rows, frozenset({"pair"}))


def _legend(cells: Sequence[Mutants], frames: Sequence[pl.DataFrame]) -> tuple[str, ...]:
    lines = [
        "effect: over all pairs of mutants that differ in this switch only",
        "interaction: what throwing the second adds to the effect of the first, over all squares",
        "regression: the same by least squares of the two-way model in ±1 coding",
    ]
    for cell, frame in zip(cells, frames, strict=True):
        losses = cell.losses.mean(1)
        parts = [
            number(explained(cell.patterns, losses, pairs=pairs), ".0%") for pairs in (False, True)
        ]
        lines.append(
            f"{cell.cell}: of the variance between mutants, switches alone explain {parts[0]}, "
            f"with pairs {parts[1]}"
        )
        never = frame.filter(pl.col("second").is_not_null() & (pl.col("count") == 0))
        if len(never):
            words = ", ".join(f"{r['first']} × {r['second']}" for r in never.to_dicts())
            lines.append(f"{cell.cell}: no squares, so no interaction: {words}")
        if cell.left_out:
            lines.append(f"{cell.cell}: left out, as a seed is missing: {_few(cell.left_out)}")
    return tuple(lines)


def _few(labels: Sequence[str], most: int = 8) -> str:
    rest = f" and {len(labels) - most} more" if len(labels) > most else ""
    return "; ".join(labels[:most]) + rest


def _single(cell: Mutants) -> list[tuple[str, np.ndarray]]:
    """The mutants with one switch thrown."""
    return [(m, p) for m, p in zip(cell.labels, cell.patterns, strict=True) if p.sum() == 1]


def _estimate(row: Mapping[str, Any], name: str) -> str:
    return mean(row[name], row[f"{name}_high"], "+.3f")
