"""Read the test loss of every sequence from the confirm runs of a study.

    test-EPOCH.npy   float32 (2, N): NLL of each test sequence in nats, tokens scored in it

Two points are compared over the seeds that both have, on the same test split. A run that diverged,
or that an older version trained, has no such file and counts as missing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmzoo.statistics.intervals import Array
from lmzoo.statistics.two_way import loss_contributions
from lmzoo.store.records import RunFolder


class SequenceLosses(NamedTuple):
    """Contribution of each test sequence to the loss, for all seeds of one point."""

    seeds: tuple[int, ...]
    contributions: Array
    """(S, N) nats per token, rows in the order of `seeds`."""


def read_sequence_losses(
    path: Path, study: Mapping[str, Any], runs: pl.DataFrame, epoch: int, metric: str
) -> dict[str, SequenceLosses]:
    """Return the losses of the confirm runs, point -> losses, for points that have any file.

    Args:
        path: the study's folder.
        study: the content of `study.json`.
        runs: the frame of runs, which has their seeds.
        epoch: the epoch of the test.
        metric: `token` or `sentence`.
    """
    seeds = dict(runs.select("run", "seed").iter_rows())
    losses: dict[str, SequenceLosses] = {}
    for point, chosen in study.get("chosen", {}).items():
        rows: dict[int, Array] = {}
        for run in chosen["runs"]:
            stored = _read(RunFolder(path / run).losses_path(epoch))
            if stored is not None and run in seeds:
                rows[seeds[run]] = loss_contributions(stored[:1], stored[1], metric)[0]
        if len({len(row) for row in rows.values()}) == 1:
            order = sorted(rows)
            stacked = np.stack([rows[seed] for seed in order])
            losses[point] = SequenceLosses(tuple(order), stacked)
    return losses


def paired_losses(point: SequenceLosses, reference: SequenceLosses) -> tuple[Array, Array]:
    """Return both points' contributions for their common seeds; empty if the splits differ."""
    seeds = [seed for seed in point.seeds if seed in reference.seeds]
    if not seeds or point.contributions.shape[1] != reference.contributions.shape[1]:
        empty = np.empty((0, 0))
        return empty, empty
    rows = [point.seeds.index(seed) for seed in seeds]
    reference_rows = [reference.seeds.index(seed) for seed in seeds]
    return point.contributions[rows], reference.contributions[reference_rows]


def _read(path: Path) -> NDArray[np.float32] | None:
    """Return the two rows of a file; None if it does not exist or is damaged."""
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        return None
    valid = stored.ndim == 2 and stored.shape[0] == 2 and np.isfinite(stored).all()
    return stored if valid else None
