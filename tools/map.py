"""The map: what cuts cost after training, against models that were trained without the part.

    python tools/map.py train CELL,CELL TASK,TASK    studies of all single cuts, and `lmzoo ablate`
    python tools/map.py train all all                all of them: a long time; it continues
    python tools/map.py whole CELL,CELL TASK,TASK    whole cells only, and `lmzoo ablate`
    python tools/map.py seal FILE                    predict what is not trained yet, with a hash
    python tools/map.py score FILE                   score the prediction, when it is trained
    python tools/map.py table                        where the two costs disagree; rank correlations

All studies are in runs/map; one that is recorded in `docs/results/records` is read from there. The
prediction is fitted on the recorded studies that have the costs of `lmzoo ablate`, and on those of
runs/map that are complete. It is made for the cells of which only the whole one is trained:

    log(ε + cost of training without) = w · log(ε + costs after training) + error

with a normal error. The prior is "costs nothing": log ε, with the spread of the fitted cells. The
file is committed before the parts are cut from the training of the other cells.
"""

import hashlib
import json
import math
import runpy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from map_overview import TASKS, overview_report
from map_table import SMALL, log_cost, prediction_report, read
from polars import col

import lmzoo
from lmzoo import UserError
from lmzoo.base.command_line import run_command
from lmzoo.base.streams import echo
from lmzoo.cells.base import CELLS
from lmzoo.lab.analysis.after_training import costs, read_lines
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.render import render
from lmzoo.lab.store.records import ABLATIONS
from lmzoo.trainables.resolve import store_folder

FOLDER = Path("runs/map")
RECORDED = Path("docs/results/records")
CORPORA = {task: corpus for corpus, task in TASKS.items()}
WAYS = ("zero", "mean", "other", "trained")
KEYS = ["cell", "corpus", "cut"]


def studies() -> Iterator[tuple[str, str, Path]]:
    """Yield cell, corpus and folder of each study that has costs after training."""
    ending = f".{ABLATIONS}.gz"
    for lines in sorted(RECORDED.glob(f"*{ending}")):
        name = lines.name.removesuffix(ending)
        cell, corpus = name.removeprefix("map-").rsplit("-", 1)
        yield cell, corpus, read(RECORDED / f"{name}.parquet", lines).path
    for cell, corpus in product(CELLS, TASKS):
        folder = store_folder(FOLDER, f"map-{cell}", corpus)
        is_recorded = (RECORDED / f"map-{cell}-{corpus}.parquet").exists()
        if (folder / ABLATIONS).exists() and not is_recorded:
            yield cell, corpus, folder


def after_training() -> pl.DataFrame:
    """Return one row a cell, corpus and cut, with the costs after training."""
    frames = []
    for cell, corpus, folder in studies():
        own = costs(read_lines(folder)).pivot("way", index="cut", values="mean")
        frames.append(own.with_columns(cell=pl.lit(cell), corpus=pl.lit(corpus)))
    if not frames:
        raise UserError(f"no study in {RECORDED} or {FOLDER}; run it in the root of the repository")
    return pl.concat(frames, how="diagonal")


def trained_without() -> pl.DataFrame:
    """Return one row a cell, corpus and cut that was trained, with its cost and verdict."""
    frames = []
    for cell, corpus, folder in studies():
        own = lmzoo.rank(folder).select(cut="label", cost="difference", verdict="verdict")
        decided = own.drop_nulls("verdict")
        frames.append(decided.with_columns(cell=pl.lit(cell), corpus=pl.lit(corpus)))
    return pl.concat(frames)


def both() -> pl.DataFrame:
    """Return the cuts that have both costs."""
    return after_training().join(trained_without(), on=KEYS, maintain_order="left")


def train(cells: str, tasks: str, *, whole: bool = False) -> None:
    """Train what is missing of the studies, and cut the trained models."""
    sweep = runpy.run_path("sweeps/map_cells.py")
    chosen = list(sweep["CUTS"]) if cells == "all" else cells.split(",")
    for cell, task in product(chosen, CORPORA if tasks == "all" else tasks.split(",")):
        own = replace(sweep["study"](cell), corpus=CORPORA[task])
        points = own.points[:1] if whole else own.points
        lmzoo.run_study(own, out=FOLDER, points=points)
        echo(lmzoo.ablate(store_folder(FOLDER, own.name, own.corpus)))


def features(table: pl.DataFrame) -> Any:
    """Return (cuts, features); a way without a meaning has the cost of `zero`."""
    columns = [np.ones(len(table))]
    for way in WAYS:
        own = table[way].fill_null(table["zero"]).fill_null(0.0).to_numpy()
        columns.append(np.log(np.maximum(own, 0.0) + SMALL))
    return np.column_stack(columns)


def seal(file: str) -> None:
    """Write the prediction for the cuts that are not trained, and print its hash."""
    trained = both()
    # A cut with which most runs fail has no cost, and is no cut to predict, either.
    known = trained.drop_nulls("cost")
    # The error has no spread unless there are more cuts than weights.
    if len(known) <= len(WAYS) + 1:
        raise UserError(f"{len(known)} cuts have both costs; train more cells first")
    matrix = features(known)
    target = log_cost(known["cost"])
    # A small ridge: the ways are nearly the same number for many cuts.
    ridge = 1e-2 * np.eye(matrix.shape[1])
    weights = np.linalg.solve(matrix.T @ matrix + ridge, matrix.T @ target)
    # A recorded study has all of its points; its other cuts are never trained.
    candidates = after_training().filter(col("cell").is_in(list(CELLS)))
    open_cuts = candidates.join(trained, on=KEYS, how="anti", maintain_order="left")
    predicted = features(open_cuts) @ weights
    sealed = {
        "weights": weights.tolist(),
        "error": float((target - matrix @ weights).std(ddof=len(weights))),
        "prior": float(np.sqrt(np.mean((target - math.log(SMALL)) ** 2))),
        "cuts": open_cuts.select(KEYS).with_columns(predicted=predicted).to_dicts(),
    }
    text = json.dumps(sealed, indent=1) + "\n"
    Path(file).write_text(text)
    echo(f"{file}: {len(open_cuts)} cuts, sha256 {hashlib.sha256(text.encode()).hexdigest()}")


def score(file: str) -> None:
    """Print a sealed prediction with the recorded costs, and its score."""
    echo(render(prediction_report(Path(file)), "table"))


def show() -> None:
    """Print how often the two costs agree, where they do not, and their correlations."""
    folders = [load_study(folder) for _, _, folder in studies()]
    echo(render(overview_report(folders), "table"))


def main(part: str, words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Run a part of the program."""
    parts = {"train": train, "whole": partial(train, whole=True), "seal": seal, "score": score}
    parts["table"] = show
    if part not in parts:
        raise UserError(f"no part {part!r}; known: {', '.join(parts)}")
    parts[part](*(words or []))


if __name__ == "__main__":
    run_command(main)
