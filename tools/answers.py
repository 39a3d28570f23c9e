"""Tables of the four pages that answer a question by several studies, or by one in another order.

<!-- table: places records/hybrid_recall-mqar.parquet -->
<!-- table: per_width records/widths_mup-captions.parquet --to "GRU E=" -->
<!-- table: two_optimisers records/ADAMW.parquet records/MUON.parquet -->
"""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
from atlas import ranking
from scipy import stats

import lmzoo
from lmzoo.lab.analysis.render import Report, TextTable
from lmzoo.lab.analysis.verdict_lines import SHOWN


def _report(title: str, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Report:
    table = TextTable(title, tuple(header), list(rows), frozenset({header[0]}))
    return Report((), (table,), (), pl.DataFrame())


def places(path: Path) -> Report:
    """Return the accuracy of each cell by the layer that is attention."""
    texts: dict[str, dict[str, str]] = {}
    for row in ranking(path).frame.to_dicts():
        names = ("accuracy", "accuracy_low", "accuracy_high")
        mean, low, high = (f"{100 * row[name]:.1f}" for name in names)
        cell, _, place = row["label"].partition(", ")
        texts.setdefault(place, {})[cell] = f"{mean} %" + f" ({low} to {high})" * (low != high)
    cells = sorted(texts["none"], reverse=True)
    order = ["none", *sorted(texts.keys() - {"none"})]
    rows = [(place, *(texts[place][cell] for cell in cells)) for place in order]
    return _report("accuracy, worst to best seed", ("attention in", *cells), rows)


def per_width(path: Path, *, to: str) -> Report:
    """Return the verdict on each cell against the one of its own width whose label begins so."""
    frame = ranking(path).frame
    widths = sorted((own.removeprefix(to) for own in frame["label"] if own.startswith(to)), key=int)
    texts: dict[str, list[str]] = {}
    for width in widths:
        rows = ranking(path, reference=to + width).frame.filter(~pl.col("reference")).sort("label")
        for row in rows.filter(pl.col("label").str.ends_with(f" E={width}")).to_dicts():
            low, high = (f"{row[f'difference_{end}']:.3f}" for end in ("low", "high"))
            verdict = SHOWN.get(row["verdict"], row["verdict"])
            text = f"{verdict}, {row['difference']:+.3f} ({low} to {high})".replace("-", "−")
            texts.setdefault(row["label"].partition(" ")[0], []).append(text)
    reference = to.partition(" ")[0]
    header = (f"against {reference}", *(f"width {width}" for width in widths))
    title = f"differences to the {reference} of the same width, nats"
    return _report(title, header, [(cell, *own) for cell, own in texts.items()])


def two_optimisers(first: Path, second: Path) -> Report:
    """Return the test losses of each cell with two optimisers, and their order.

    The intervals have the spread between seeds that all cells of a study share, and not the choice
    of the rate.
    """
    losses, sds, freedoms = [], [], []
    for path in (first, second):
        chosen = lmzoo.runs(str(path)).filter(pl.col("chosen"), pl.col("parameters") > 0)
        grouped = chosen.group_by("label").agg(pl.col("test").drop_nulls()).sort("label")
        own = {label: np.array(test) for label, test in grouped.rows()}
        losses.append(own)
        freedoms.append(sum(len(x) - 1 for x in own.values()))
        squares = sum(len(x) * x.var() for x in own.values())
        sds.append((squares / freedoms[-1]) ** 0.5)
    means = [{label: x.mean() for label, x in own.items()} for own in losses]
    ranks = [stats.rankdata([*own.values()]).astype(int) for own in means]
    rows = []
    for i, label in sorted(enumerate(means[0]), key=lambda pair: means[0][pair[1]]):
        variances = [sd**2 / len(own[label]) for sd, own in zip(sds, losses, strict=True)]
        error, freedom = sum(variances), list(zip(variances, freedoms, strict=True))
        df = error**2 / sum(v**2 / n for v, n in freedom)
        half = stats.t.ppf(0.975, df) * error**0.5
        cells = (f"{own[label]:.3f} ({rank[i]})" for own, rank in zip(means, ranks, strict=True))
        difference = f"{means[1][label] - means[0][label]:+.3f} ±{half:.3f}".replace("-", "−")
        rows.append((label, *cells, difference))
    pairs = list(combinations(range(len(rows)), 2))
    same = sum((ranks[0][i] < ranks[0][j]) == (ranks[1][i] < ranks[1][j]) for i, j in pairs)
    tau, _ = stats.kendalltau(*ranks)
    title = (
        f"test loss (rank); spread between seeds {sds[0]:.3f} and {sds[1]:.3f}; {same} of "
        f"{len(pairs)} pairs in one order, τ {tau:.2f}"
    )
    return _report(title, ("cell", "AdamW", "Muon", "Muon less AdamW"), rows)
