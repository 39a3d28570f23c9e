"""A study's folder -> for each recurrent cell, which switches its mutants throw and their losses.

The wild type is the first of a cell's points in the study. What another has otherwise is
a switch that it throws: a member of a list ("state_to_candidate" of `cuts`), a truth
("keep"), another value ("gate=centred"). Switches are found, not known: any study whose
points differ in their cell can be read.

Only points that have a loss for every seed are mutants, and the wild type must be one: all
effects of one seed are then taken over the same design. The others are named.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from lmzoo.analysis.contrasts import Patterns
from lmzoo.analysis.load import Folder
from lmzoo.analysis.statistics import Array
from lmzoo.errors import UserError
from lmzoo.store.records import RunFolder


class Mutants(NamedTuple):
    """The mutants of one cell, all measured on the same seeds."""

    cell: str
    switches: tuple[str, ...]
    labels: tuple[str, ...]
    patterns: Patterns
    """(P, F), the wild type first."""
    losses: Array
    """(P, S) test losses in nats per token."""
    left_out: tuple[str, ...]
    """Labels of points that lack a seed."""


class _Point(NamedTuple):
    """A point that has a cell."""

    label: str
    cell: dict[str, Any]
    """Empty if no setting is confirmed yet."""
    losses: list[float | None]


def read_mutants(path: Path, folder: Folder, metric: str) -> list[Mutants]:
    """The cells that a study mutates, in its order.

    Raises:
        UserError: no cell has two mutants that are done, its wild type is not, or two points
            have one pattern.
    """
    if metric not in ("token", "sentence"):
        raise UserError(f"no metric {metric!r}; known: token, sentence")
    losses = _losses(folder, metric)
    families: dict[str, list[_Point]] = {}
    doubts: dict[str, list[str]] = {}
    unknown: list[str] = []
    begun = _begun(folder)
    for point in folder.study["points"]:
        runs = folder.study["chosen"].get(point["id"], {}).get("runs", [])
        configs = [RunFolder(path / run).config for run in runs]
        cell = next((c["model"].get("cell") for c in configs if c), None)
        name = cell["name"] if isinstance(cell, dict) else point.get("cell", begun.get(point["id"]))
        if name is not None:
            doubts.setdefault(name, list(unknown))
            found = [losses.get(run) for run in runs]
            families.setdefault(name, []).append(_Point(point["label"], cell or {}, found))
        elif "cell" not in point and point["id"] not in begun:
            unknown.append(point["label"])
    found = [_family(cell, points, doubts[cell]) for cell, points in families.items()]
    whole = [mutants for mutants in found if len(mutants.labels) > 1 and mutants.switches]
    if not whole:
        raise UserError(
            f"study {folder.study['name']!r} has no two mutants of a cell with all their seeds; "
            "run its sweep again, or choose a study whose points differ in their cell"
        )
    return whole


def thrown(cell: Mapping[str, Any], wild: Mapping[str, Any]) -> frozenset[str]:
    """The switches that tell a cell's config from the wild type's."""
    found: set[str] = set()
    for name, value in cell.items():
        base = wild.get(name)
        if isinstance(value, list):
            found |= {str(member) for member in value if member not in (base or ())}
            found |= {f"{name} without {member}" for member in base or () if member not in value}
        elif value != base:
            found.add(name if value is True else f"{name}={value}")
    return frozenset(found)


def _family(cell: str, points: Sequence[_Point], doubtful: Sequence[str]) -> Mutants:
    """The points that are done, as mutants of the first.

    Args:
        cell: its name.
        points: all that have it, in the study's order.
        doubtful: those before them of which nothing is known, so that one may be the wild type.
    """
    wild = points[0]
    seeds = max(len(point.losses) for point in points)
    done = [p for p in points if seeds and len(p.losses) == seeds and None not in p.losses]
    if len(done) > 1 and (doubtful or wild not in done):
        said = f"its wild type, point {wild.label!r}, is not confirmed yet with all {seeds} seeds"
        if doubtful:
            said = f"its wild type may be point {doubtful[0]!r}, which has no run yet"
        raise UserError(f"{cell}: {said}; effects are changes from it, so run its sweep again")
    patterns = [thrown(point.cell, wild.cell) for point in done]
    for place, pattern in enumerate(patterns):
        if pattern in patterns[:place]:
            twin = done[patterns.index(pattern)].label
            raise UserError(
                f"points {twin!r} and {done[place].label!r} have the same cell: effects of "
                "switches need points that differ in nothing but their cell"
            )
    known = list(dict.fromkeys(s for pattern in patterns for s in sorted(pattern)))
    return Mutants(
        cell,
        tuple(known),
        tuple(point.label for point in done),
        np.array([[s in pattern for s in known] for pattern in patterns], bool),
        np.array([point.losses for point in done], np.float64),
        tuple(point.label for point in points if point not in done),
    )


def _begun(folder: Folder) -> dict[str, str | None]:
    """Point -> the name of its cell, None if it has none; of points that have any run."""
    found: dict[str, str | None] = {}
    for point, model in folder.runs.select("point", "model").unique("point").collect().iter_rows():
        cell = json.loads(model).get("cell")
        found[point] = cell["name"] if isinstance(cell, dict) else None
    return found


def _losses(folder: Folder, metric: str) -> dict[str, float]:
    """Run -> test loss at the study's budget, of the runs that did not diverge within it."""
    budget = folder.study["budget"]["epochs"]
    ends = folder.events.filter((pl.col("event") == "end") & (pl.col("epoch") <= budget))
    diverged = ends.filter(pl.col("status") == "diverged")
    tests = folder.events.filter((pl.col("event") == "test") & (pl.col("epoch") == budget))
    found = tests.join(diverged, on="run", how="anti").select("run", metric).drop_nulls()
    return dict(found.collect().iter_rows())
