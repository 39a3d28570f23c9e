"""Find the mutants of each recurrent cell in a study: their switches and their losses.

The wild type of a cell is the study's reference, or else the first point with this cell. Each
difference between a point's cell config and the wild type's is a switch that is on in this mutant:
an element of a list ("state_to_candidate" of `cuts`), a boolean ("keep"), or another value
("gate=centred"). No list of switches is needed, so any study whose points differ in their cell can
be read.

Only points with a loss for every seed are mutants, and the wild type must be one of them: then all
effects of one seed are estimated on the same design. The other points are listed as incomplete.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import StudyFolder, status_at
from lmzoo.lab.analysis.ranking import METRICS
from lmzoo.lab.statistics.factorial import Patterns
from lmzoo.lab.statistics.intervals import Array
from lmzoo.lab.store.archive import read_config


class Mutants(NamedTuple):
    """The mutants of one cell, all measured on the same seeds."""

    cell: str
    switches: tuple[str, ...]
    labels: tuple[str, ...]
    patterns: Patterns
    """(P, F), the wild type first."""
    losses: Array
    """(P, S) test losses in nats per token."""
    tuning_sd: Array
    """(P,) standard deviation of the loss over repetitions of the tuning."""
    incomplete: tuple[str, ...]
    """Labels of the points that lack a seed."""


class _Point(NamedTuple):
    """A point whose model has a cell."""

    label: str
    cell: dict[str, Any]
    """Config of the cell; empty if no setting is chosen yet."""
    losses: list[float | None]
    tuning_sd: float


def read_mutants(path: Path, folder: StudyFolder, metric: str) -> list[Mutants]:
    """Return the mutants of each cell of a study, in the study's order.

    Raises:
        UserError: No cell has two complete mutants, a wild type is incomplete, or two points have
            the same cell.
    """
    if metric not in METRICS:
        raise UserError(f"no metric {metric!r}; known: {', '.join(METRICS)}")
    losses, study = _test_losses(folder, metric), folder.study
    cells: dict[str, list[_Point]] = {}
    for point in study["points"]:
        chosen = study["chosen"].get(point["id"], {})
        runs = chosen.get("runs", [])
        configs = [read_config(path, run) for run in runs]
        cell = next((c["model"].get("cell") for c in configs if c), None)
        name = cell["name"] if isinstance(cell, dict) else point.get("cell")
        is_reference = point["id"] == study.get("reference")
        if is_reference and not configs and "cell" not in point:
            raise UserError(
                f"the reference {point['label']!r} is not confirmed yet, and may be the wild type; "
                "run the sweep again"
            )
        if name is not None:
            own = [losses.get(run) for run in runs]
            sd = chosen.get("tuning_sd") or 0.0
            found = _Point(point["label"], cell or {}, own, sd)
            points = cells.setdefault(name, [])
            points.insert(0 if is_reference else len(points), found)
    mutants = [_mutants(name, points) for name, points in cells.items()]
    usable = [m for m in mutants if len(m.labels) > 1 and m.switches]
    if not usable:
        raise UserError(
            f"study {study['name']!r} has no two mutants of a cell with all their seeds; "
            "run its sweep again, or choose a study whose points differ in their cell"
        )
    return usable


def switched_on(cell: Mapping[str, Any], wild: Mapping[str, Any]) -> frozenset[str]:
    """Return the switches that are on in a cell: its differences from the wild type's config."""
    switches: set[str] = set()
    for name, value in cell.items():
        base = wild.get(name)
        if isinstance(value, list):
            switches |= {str(element) for element in value if element not in (base or ())}
            removed = [element for element in base or () if element not in value]
            switches |= {f"{name} without {element}" for element in removed}
        elif isinstance(value, Mapping) and isinstance(base, Mapping):
            switches |= switched_on(value, base)  # a cell inside a block
        elif value != base:
            switches.add(name if value is True else f"{name}={value}")
    return frozenset(switches)


def _mutants(cell: str, points: Sequence[_Point]) -> Mutants:
    """Return the complete points of a cell as mutants of its first point."""
    wild = points[0]
    seeds = max(len(point.losses) for point in points)
    complete = [p for p in points if seeds and len(p.losses) == seeds and None not in p.losses]
    if len(complete) > 1 and wild not in complete:
        raise UserError(
            f"{cell}: its wild type, point {wild.label!r}, is not confirmed yet with all {seeds} "
            "seeds; effects are changes from the wild type, so run its sweep again"
        )
    patterns = [switched_on(point.cell, wild.cell) for point in complete]
    for index, pattern in enumerate(patterns):
        if pattern in patterns[:index]:
            first, second = complete[patterns.index(pattern)].label, complete[index].label
            raise UserError(
                f"points {first!r} and {second!r} have the same cell, but effects of switches need "
                "points that differ only in their cell"
            )
    switches = list(dict.fromkeys(s for pattern in patterns for s in sorted(pattern)))
    return Mutants(
        cell,
        tuple(switches),
        tuple(point.label for point in complete),
        np.array([[s in pattern for s in switches] for pattern in patterns], bool),
        np.array([point.losses for point in complete], np.float64),
        np.array([point.tuning_sd for point in complete]),
        tuple(point.label for point in points if point not in complete),
    )


def _test_losses(folder: StudyFolder, metric: str) -> dict[str, float]:
    """Return run -> test loss at the study's budget, for runs that did not diverge by then."""
    budget = folder.study["budget"]["epochs"]
    diverged = folder.runs.filter(status_at(budget) == "diverged")
    tests = folder.events.filter((pl.col("event") == "test") & (pl.col("epoch") == budget))
    losses = tests.join(diverged, on="run", how="anti").select("run", metric).drop_nulls()
    return dict(losses.collect().iter_rows())
