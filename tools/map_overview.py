"""All cuts of the map together: correlations, where the two costs disagree, and one figure.

fatal    cutting the part costs the trained model `FATAL` nats or more
free     a model that never had the part is as good: its verdict is negligible or better
needed   training without the part is worse
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl
from map_table import rank_correlation, read
from polars import DataFrame, col

from lmzoo.lab.analysis.after_training import add_after_training, costs, format_cost, read_lines
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import Report, TextTable
from lmzoo.lab.analysis.report.colours import by_verdict, chart_of, group_of
from lmzoo.lab.analysis.report.forest import PICTURE_WIDTH, picture
from lmzoo.lab.analysis.report.two_costs import ROOM
from lmzoo.lab.analysis.verdict_lines import verdict_text
from lmzoo.lab.statistics.compared import MARGIN, UNDECIDED
from lmzoo.lab.store.records import ABLATIONS

FATAL = 1.0
CHEAP = 0.25
"""Nats."""
TOP = 30.0
"""Nats above which a cost is that of a model that exploded."""
NAMES = {
    "mgu": "minimal gated unit",
    "gla": "gated linear attention",
    "hgrn2": "HGRN2",
    "retention": "RetNet",
    "lru": "LRU",
    "gru": "GRU",
    "lstm_peephole": "LSTM with peepholes",
    "mgru": "MGRU",
    "min_gru": "minGRU",
    "min_lstm": "minLSTM",
    "mamba": "Mamba",
    "mamba2": "Mamba-2",
    "gated_deltanet": "Gated DeltaNet",
    "deltanet": "DeltaNet",
    "slstm": "sLSTM",
    "mlstm": "mLSTM",
    "rg_lru": "RG-LRU",
}
"""Cell -> its name on a page."""
TASKS = {"captions": "captions", "mqar": "recall", "parity": "parity", "shakespeare_char": "text"}
"""Corpus -> its name on a page."""
FORMS = ("free", "needed", "undecided")


def recorded(studies: Iterable[Path]) -> Iterator[StudyFolder]:
    """Yield recorded studies, with the lines of `lmzoo ablate`."""
    for study in studies:
        yield read(study, study.with_suffix(f".{ABLATIONS}.gz"))


def all_cuts(folders: Iterable[StudyFolder]) -> DataFrame:
    """Return one row a cell, task and cut that have both costs."""
    return pl.concat(map(_cuts, folders), how="diagonal_relaxed")


def _cuts(folder: StudyFolder) -> DataFrame:
    """Return the cuts of a study, with what further training leaves of their costs."""
    ranked = add_after_training(study_ranking(folder).frame, folder)
    lines = read_lines(folder.path)
    models = folder.runs.select("point", "model").collect().rows()
    whole = json.loads(dict(models)[folder.study["reference"]])
    cell = whole["cell"]
    # A modern cell stands in a block.
    cell = cell.get("inner", cell)["name"]
    repaired = costs(lines).filter(way="trained").select(label="cut", repaired="mean")
    corpus = json.loads(ranked["corpus"][0])["name"]
    # A point of a single seed has no verdict.
    cuts = ranked.drop_nulls(["after_training", "verdict"])
    return (
        cuts.join(repaired, on="label", how="left", maintain_order="left")
        .with_columns(cell=pl.lit(NAMES.get(cell, cell)), task=pl.lit(TASKS[corpus]))
        .with_columns(form=_form())
    )


def _form() -> pl.Expr:
    verdict = col("verdict")
    is_free = verdict.str.starts_with("negligible") | verdict.str.starts_with("better")
    return (
        pl.when(verdict == UNDECIDED)
        .then(pl.lit("undecided"))
        .when(is_free)
        .then(pl.lit("free"))
        .otherwise(pl.lit("needed"))
    )


def overview_report(folders: Iterable[StudyFolder]) -> Report:
    """Return how often the two costs agree, where they do not, and their correlations."""
    frame = all_cuts(folders)
    fatal = col("after_training") >= FATAL
    fatal_and_free = frame.filter(fatal, form="free").sort("after_training", descending=True)
    cheap_and_needed = frame.filter(~fatal, form="needed").sort("difference", descending=True)
    tables = (
        _counts(frame),
        _listed(f"{FATAL:g} nat or more after training, and free in training", fatal_and_free),
        _listed(
            f"less than {FATAL:g} nat after training, and needed in training", cheap_and_needed
        ),
        _correlations(frame),
    )
    return Report((_correlation_line(frame),), tables, (), frame)


def _correlation_line(frame: DataFrame) -> str:
    """Return the rank correlations within tasks and over all."""
    told = []
    for cell, task, cuts in _groups(frame):
        if cell == "all":
            found = rank_correlation(cuts["after_training"], cuts["difference"], cuts["cell"])
            place = f"on {task}"
            if task == "all":
                place = "in all"
            told.append(f"{place} {found}")
    return f"Rank correlation of the two costs: {', '.join(told)}."


def _counts(frame: DataFrame) -> TextTable:
    """Return how many cuts have which costs."""
    after = col("after_training")
    rows = []
    for name, is_here in {
        f"costs {FATAL:g} nat or more": after >= FATAL,
        f"costs {CHEAP:g} to {FATAL:g} nats": after.is_between(CHEAP, FATAL, closed="left"),
        f"costs less than {CHEAP:g} nats": after < CHEAP,
    }.items():
        own = frame.filter(is_here)
        counts = [str(own.filter(form=form).height) for form in FORMS]
        rows.append([name, *counts])
    header = ("cut after training", "training without it: free", "needed", "undecided")
    return TextTable(f"{len(frame)} cuts by their two costs", header, rows, frozenset(header[:1]))


def _listed(title: str, cuts: DataFrame) -> TextTable:
    """Return cuts with both of their costs."""
    rows = []
    for row in cuts.iter_rows(named=True):
        # The table of the cell has the intervals of the costs after training.
        after = f"{row['after_training']:+.2g}".replace("-", "−")
        left = f"{row['repaired']:+.2g}".replace("-", "−")
        ends = row["difference_low"], row["difference_high"]
        without = format_cost(row["difference"], *ends)
        name = row["label"].removeprefix("cut ")
        rows.append([row["cell"], row["task"], name, after, left, without, verdict_text(row)])
    header = ("cell", "task", "part", "cut", "5 % more training", "trained without", "its verdict")
    return TextTable(title, header, rows, frozenset(header[:3]))


def _correlations(frame: DataFrame) -> TextTable:
    """Return the rank correlation of the two costs within cells, within tasks, and over all."""
    rows = []
    for cell, task, cuts in _groups(frame):
        decided = cuts.filter(col("form") != "undecided").height
        found = rank_correlation(cuts["after_training"], cuts["difference"], cuts["cell"])
        correlation, _, _ = found.partition(" over")
        rows.append([cell, task, str(len(cuts)), str(decided), correlation])
    header = ("cell", "task", "cuts", "decided", "rank correlation of the two costs")
    return TextTable("rank correlation by cell and task", header, rows, frozenset(header[:2]))


def _groups(frame: DataFrame) -> Iterator[tuple[str, str, DataFrame]]:
    yield "all", "all", frame
    for (task,), own in frame.group_by("task", maintain_order=True):
        yield "all", task, own
    for (task, cell), own in frame.group_by("task", "cell", maintain_order=True):
        yield cell, task, own


def overview_picture(folders: Iterable[StudyFolder]) -> str:
    """Return the figure of both costs of all cuts as SVG."""
    frame = all_cuts(folders)
    cuts = frame.drop_nulls("difference")
    rows = []
    for row in cuts.iter_rows(named=True):
        after = min(row["after_training"], TOP)
        label = f"{row['cell']}, {row['task']}: {row['label']}"
        own = {"label": label, "group": group_of(row), "name": "", "side": "left"}
        own |= {"difference": row["difference"], "after_training": after}
        rows.append(own)
    notes = [
        "above the line, a cut hurts the trained model more than a model trained without the part",
        f"both axes are about linear within ±{MARGIN:g} and logarithmic beyond",
        f"a cost above {TOP:g} nats is drawn at {TOP:g}",
        f"not drawn, as most models without the part fail: {len(frame) - len(cuts)} cuts",
    ]
    across = [row["difference"] for row in rows]
    down = [row["after_training"] for row in rows]
    chart = chart_of(
        "two_costs",
        f"{len(rows)} cuts: after training, or trained without",
        notes,
        rows=rows,
        low=ROOM * min(across + down),
        ends=[ROOM * max(across), ROOM * max(down)],
        margin=MARGIN,
        unit="nats per token",
        **by_verdict(rows),
    )
    return picture({**chart, "width": PICTURE_WIDTH})
