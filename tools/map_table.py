"""The table and the figure of the map: cuts after training, and models trained without the part."""

import gzip
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from polars import col
from scipy import stats

import lmzoo
from lmzoo import UserError
from lmzoo.lab.analysis.after_training import (
    WAYS,
    add_after_training,
    costs,
    format_cost,
    read_lines,
)
from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import Report, TextTable
from lmzoo.lab.analysis.report.forest import PICTURE_WIDTH, picture
from lmzoo.lab.analysis.report.two_costs import two_costs_chart
from lmzoo.lab.analysis.study_parquet import restore_study
from lmzoo.lab.analysis.verdict_lines import verdict_text
from lmzoo.lab.store.records import ABLATIONS

SMALL = 0.02
"""Nats added before a logarithm, ε: the margin below which a cost is negligible."""
SCRATCH = tempfile.TemporaryDirectory()
"""It lives as long as the process: a study is read from its folder again and again."""


def read(study: Path, ablations: Path) -> StudyFolder:
    """Return a recorded study with the recorded lines of `lmzoo ablate`, as a folder has them."""
    folder = Path(SCRATCH.name) / study.stem
    if not folder.exists():
        restore_study(study, folder)
        (folder / ABLATIONS).write_bytes(gzip.decompress(ablations.read_bytes()))
    return load_study(folder)


def map_report(study: Path, ablations: Path) -> Report:
    """Return the table of both costs of each cut, and their rank correlation."""
    folder = read(study, ablations)
    frame = add_after_training(study_ranking(folder).frame, folder).drop_nulls("after_training")
    frame = frame.sort("after_training", descending=True)
    known = costs(read_lines(folder.path))
    steps = known["steps"].max()
    rows = []
    for row in frame.iter_rows(named=True):
        ends = row["difference_low"], row["difference_high"]
        without = format_cost(row["difference"], *ends)
        # Two labels can be one function; the lines have the name of the study's point.
        own = {x["way"]: x for x in known.filter(cut=row["label"]).iter_rows(named=True)}
        cells = [_cell(own[way]) for way in WAYS]
        rows.append([row["label"], *cells, without, verdict_text(row)])
    names = [name.format(steps=steps) for name in WAYS.values()]
    header = ("cut", *names, "trained without", "its verdict")
    corpus = json.loads(frame["corpus"][0])["name"]
    title = f"{corpus}, width 32: nats per token"
    table = TextTable(title, header, rows, frozenset({header[0]}))
    found = rank_correlation(frame["after_training"], frame["difference"])
    line = f"rank correlation of the first and the last cost: {found}"
    return Report((), (table,), (line,), frame)


def _cell(row: Mapping[str, float | None]) -> str:
    return format_cost(row["mean"], row["low"], row["high"])


def rank_correlation(one: pl.Series, other: pl.Series, cells: pl.Series | None = None) -> str:
    """Return the rank correlation of cuts with an interval of 95 %.

    Cuts of a cell are alike, so over several cells the interval is one over cells. Within a cell
    it is one over cuts, by Fisher's z, as `analysis/` has it.
    """
    if len(one) < 4:
        return f"{len(one)} cuts: too few"
    # Without a cost: few of its seeds solve the task, and nothing costs more.
    costly = other.fill_null(math.inf)
    found = _spearman(one, costly)
    if cells is None or cells.n_unique() == 1:
        reach = 1.96 * math.sqrt(1.06 / (len(one) - 3))
    else:
        reach = _reach_over_cells(one, costly, cells)
    middle = _atanh(found)
    ends = f"{math.tanh(middle - reach):.2f}, {math.tanh(middle + reach):.2f}"
    return f"{found:.2f} [{ends}] over {len(one)} cuts".replace("-", "−")


def _reach_over_cells(one: pl.Series, other: pl.Series, cells: pl.Series) -> float:
    """Return the half-width of a t-interval of Fisher's z: a jackknife leaves out each cell once.

    Source: Efron and Stein 1981.
    """
    left = []
    for cell in cells.unique():
        is_kept = cells != cell
        without = _spearman(one.filter(is_kept), other.filter(is_kept))
        left.append(_atanh(without))
    freedom = len(left) - 1
    error = math.sqrt(freedom * np.var(left))
    return float(stats.t.ppf(0.975, freedom)) * error


def _spearman(one: pl.Series, other: pl.Series) -> float:
    return float(np.corrcoef(one.rank(), other.rank())[0, 1])


def _atanh(correlation: float) -> float:
    """Return Fisher's z; that of ±1 is finite."""
    return math.atanh(min(max(correlation, -0.999), 0.999))


def map_picture(study: Path, ablations: Path) -> str:
    """Return the figure of both costs as SVG."""
    folder = read(study, ablations)
    chart = two_costs_chart(folder, study_ranking(folder).frame)
    return picture({**chart, "width": PICTURE_WIDTH})


def log_cost(costs: pl.Series) -> np.ndarray:
    """Return log(ε + cost); a cost below 0 counts as 0."""
    return np.log(np.maximum(costs.to_numpy(), 0.0) + SMALL)


def prediction_report(sealed_file: Path) -> Report:
    """Return a sealed prediction with what the recorded studies found, and its score.

    The log score is the mean log density of log(ε + cost). The prior is "costs nothing".
    """
    sealed = json.loads(Path(sealed_file).read_text())
    cuts = pl.DataFrame(sealed["cuts"])
    frames = []
    for cell, corpus in cuts.select("cell", "corpus").unique(maintain_order=True).iter_rows():
        record = Path(sealed_file).parent / f"records/map-{cell}-{corpus}.parquet"
        if record.exists():
            trained = lmzoo.rank(record).rename({"label": "cut"})
            own = cuts.filter(cell=cell, corpus=corpus)
            frames.append(own.join(trained, on="cut", maintain_order="left"))
    if not frames:
        raise UserError(f"no study of {sealed_file} is recorded yet")
    frame = pl.concat(frames).filter(col("difference").is_not_null())
    frame = frame.sort("predicted", descending=True)
    error = sealed["error"]
    rows = []
    for row in frame.iter_rows(named=True):
        middle = row["predicted"]
        shown = format_cost(
            math.exp(middle) - SMALL,
            math.exp(middle - 1.96 * error) - SMALL,
            math.exp(middle + 1.96 * error) - SMALL,
        )
        without = format_cost(row["difference"], row["difference_low"], row["difference_high"])
        rows.append([row["cell"], row["cut"], shown, without, verdict_text(row)])
    header = ("cell", "cut", "predicted", "trained without", "its verdict")
    corpora = " and ".join(cuts["corpus"].unique().sort())
    table = TextTable(f"{corpora}: nats per token", header, rows, frozenset({"cell", "cut"}))
    predicted = frame["predicted"].to_numpy()
    found = log_cost(frame["difference"])
    score = stats.norm.logpdf(found, predicted, error).mean()
    prior = stats.norm.logpdf(found, math.log(SMALL), sealed["prior"]).mean()
    inside = int((np.abs(found - predicted) < 1.96 * error).sum())
    rank = rank_correlation(frame["predicted"], frame["difference"], frame["cell"])
    lines = (
        f"log score of the prediction {score:.2f}, of the prior {prior:.2f}".replace("-", "−"),
        f"{inside} of {len(frame)} costs are in the interval of 95 %",
        f"rank correlation of the prediction and the cost: {rank}",
    )
    return Report((), (table,), lines, frame)
