"""The per-sequence test losses of a study's confirm runs, read only for those compared.

    test-EPOCH.npy   float32 (2, N): NLL of each test sequence in nats, tokens scored in it

Two points can be compared over the seeds that both have on the same test split; a run that
diverged, or was written before losses were kept, has no file and is counted as missing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lmzoo.analysis.seeds_by_sequences import shares
from lmzoo.store.records import RunFolder

Array = NDArray[np.float64]


class Scored(NamedTuple):
    """What each test sequence gave to the loss of each seed of one point."""

    seeds: tuple[int, ...]
    shares: Array
    """(S, N) nats per token, in the order of `seeds`."""


def scored(
    path: Path, study: Mapping[str, Any], confirm: pl.DataFrame, epoch: int, metric: str
) -> dict[str, Scored]:
    """Point -> its confirm runs' losses at this epoch, for the points that have any file.

    Args:
        path: the study's folder.
        study: the content of `study.json`.
        confirm: the runs frame, for their seeds.
        epoch: the budget that the ranking reads.
        metric: `token` or `sentence`.
    """
    seeds = dict(confirm.select("run", "seed").iter_rows())
    found: dict[str, Scored] = {}
    for point, chosen in study.get("chosen", {}).items():
        rows: dict[int, Array] = {}
        for run in chosen["runs"]:
            kept = _read(RunFolder(path / run).losses(epoch))
            if kept is not None and run in seeds:
                rows[seeds[run]] = shares(kept[:1], kept[1], metric)[0]
        lengths = {len(row) for row in rows.values()}
        if len(lengths) == 1:
            order = sorted(rows)
            found[point] = Scored(tuple(order), np.stack([rows[seed] for seed in order]))
    return found


def common(one: Scored, other: Scored) -> tuple[Array, Array]:
    """The shares of both on the seeds they have in common, none if their test splits differ."""
    seeds = [seed for seed in one.seeds if seed in other.seeds]
    if not seeds or one.shares.shape[1] != other.shares.shape[1]:
        empty = np.empty((0, 0))
        return empty, empty
    return tuple(each.shares[[each.seeds.index(seed) for seed in seeds]] for each in (one, other))  # type: ignore[return-value]


def _read(path: Path) -> NDArray[np.float32] | None:
    """The two rows of a file; None if there is none, or it is not such a file."""
    try:
        kept = np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        return None
    return kept if kept.ndim == 2 and kept.shape[0] == 2 and np.isfinite(kept).all() else None
