"""The validation loss of each point of a study at each learning rate that all points tried.

<!-- table: rates records/widths_mup-captions.parquet -->
"""

from pathlib import Path

import polars as pl

import lmzoo
from lmzoo.lab.analysis.render import Report, TextTable

RATE = "recipe.lr"


def rate_report(path: Path) -> Report:
    """Return the mean over tune runs that were not pruned."""
    tried = (
        lmzoo.runs(str(path))
        .filter(pl.col("parameters") > 0, stage="tune")
        .group_by("label", RATE, maintain_order=True)
        .agg(pl.col("valid").filter(status="finished").mean())
    )
    # Those of the start design: further rates are each point's own.
    by_all = pl.col("label").n_unique().over(RATE) == pl.col("label").n_unique()
    tried = tried.filter(by_all)
    rates = sorted(tried[RATE].unique())
    losses: dict[str, dict[float, float | None]] = {}
    for label, rate, loss in tried.rows():
        losses.setdefault(label, {})[rate] = loss
    rows = []
    for label, found in losses.items():
        known = {rate: loss for rate, loss in found.items() if loss is not None}
        least = min(known, key=known.__getitem__)
        texts = [f"{known[rate]:.3f}" if rate in known else "pruned" for rate in rates]
        rows.append((label, *texts, f"{least:g}"))
    header = ("point", *(f"{rate:g}" for rate in rates), "best of these")
    title = "validation loss by learning rate, mean of one or two runs"
    return Report((), (TextTable(title, header, rows, frozenset({"point"})),), (), tried)
