"""A study's folder -> for each recurrent cell, which switches its mutants throw and their losses.

The wild type is the first of a cell's points in the study. What another has otherwise is
a switch that it throws: a member of a list ("state_to_candidate" of `cuts`), a truth
("keep"), another value ("gate=centred"). Switches are found, not known: any study whose
points differ in their cell can be read.

Only points that have a loss for every seed are mutants: all effects of one seed are then
taken over the same design. The others are named.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from analysis.frames.contrasts import Patterns
from analysis.frames.load import Folder
from analysis.frames.statistics import Array
from lmzoo.errors import UserError
from lmzoo.record import RunFolder


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


def read_mutants(path: Path, folder: Folder, metric: str) -> list[Mutants]:
    """The cells that a study mutates, in its order.

    Raises:
        UserError: no cell has two mutants that are done, or two points have one pattern.
    """
    if metric not in ("token", "sentence"):
        raise UserError(f"no metric {metric!r}; known: token, sentence")
    losses = _losses(folder, metric)
    families: dict[str, list[tuple[str, dict[str, Any], list[float | None]]]] = {}
    for point in folder.study["points"]:
        runs = folder.study["chosen"].get(point["id"], {}).get("runs", [])
        configs = [RunFolder(path / run).config for run in runs]
        cell = next((c["model"].get("cell") for c in configs if c), None)
        if isinstance(cell, dict):
            found = [losses.get(run) for run in runs]
            families.setdefault(cell["name"], []).append((point["label"], cell, found))
    found = [_family(cell, points) for cell, points in families.items() if len(points) > 1]
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


def _family(cell: str, points: Sequence[tuple[str, dict[str, Any], list[float | None]]]) -> Mutants:
    wild = points[0][1]
    seeds = max(len(losses) for _, _, losses in points)
    done = [p for p in points if len(p[2]) == seeds and None not in p[2]]
    patterns = [thrown(config, wild) for _, config, _ in done]
    for place, pattern in enumerate(patterns):
        if pattern in patterns[:place]:
            twin = done[patterns.index(pattern)][0]
            raise UserError(
                f"points {twin!r} and {done[place][0]!r} have the same cell: effects of switches "
                "need points that differ in nothing but their cell"
            )
    known = list(dict.fromkeys(s for pattern in patterns for s in sorted(pattern)))
    return Mutants(
        cell,
        tuple(known),
        tuple(label for label, _, _ in done),
        np.array([[s in pattern for s in known] for pattern in patterns], bool),
        np.array([losses for _, _, losses in done], np.float64),
        tuple(p[0] for p in points if p not in done),
    )


def _losses(folder: Folder, metric: str) -> dict[str, float]:
    """Run -> test loss at the study's budget, of the runs that did not diverge."""
    ends = folder.events.filter(pl.col("event") == "end")
    diverged = ends.filter(pl.col("status") == "diverged")
    tests = folder.events.filter(
        (pl.col("event") == "test") & (pl.col("epoch") == folder.study["budget"]["epochs"])
    )
    found = tests.join(diverged, on="run", how="anti").select("run", metric).drop_nulls()
    return dict(found.collect().iter_rows())
