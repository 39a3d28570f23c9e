"""The trainings as one Parquet file: written from the lines of `train.py`, and read.

    python -m benchmarks.crash_test.trainings FOLDER ...      writes docs/results/crash_test.parquet

One row a training:

    study         family, task and draw of the recipe, as text
    family, task  of the model and of the data
    draw          0 or 1: which of the two recipes of a family and a task
    width, batch, epochs, clip    the recipe of the study
    rate          learning rate of the base of the study; 0 in the runs that found it
    variant, kind the change, and base, tune, inert or change
    seed          of initial weights and order of the data; equal seeds of two variants share both
    device        cpu or cuda
    loss          of the last epoch on 400 validation sequences, nats per token; null: diverged
    valid, train  losses of all epochs

Numbers are float32.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.crash_test.population import TUNE, VARIANTS, studies
from benchmarks.crash_test.train import read_lines

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/results/crash_test.parquet"
SCHEMA = {
    "study": pl.String, "family": pl.String, "task": pl.String, "draw": pl.Int8,
    "width": pl.Int16, "batch": pl.Int16, "epochs": pl.Int8, "clip": pl.Float32,
    "rate": pl.Float32, "variant": pl.String, "kind": pl.String, "seed": pl.Int32,
    "device": pl.String, "loss": pl.Float32,
    "valid": pl.List(pl.Float32), "train": pl.List(pl.Float32),
}  # fmt: skip


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args()
    frame = collect(options.folders)
    if frame.is_empty():
        parser.error("the folders have no training")
    frame.write_parquet(options.out, compression="zstd", compression_level=19)
    size = options.out.stat().st_size / 2**20
    print(f"{len(frame)} trainings, {size:.1f} MiB")  # noqa: T201


def collect(folders: list[Path]) -> pl.DataFrame:
    """Return all trainings; of one that is there twice, the first."""
    known = {study.name: study for study in studies()}
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for folder in folders:
        for line in read_lines(folder):
            study = known[line["study"]]
            facts = {name: getattr(study, name) for name in ("family", "task", "draw")}
            facts |= {name: getattr(study, name) for name in ("width", "batch", "epochs", "clip")}
            facts |= {"rate": line["rate"], "device": line["device"]}
            columns = (line[name] for name in ("variant", "seed", "valid", "train"))
            for variant, seed, valid, train in zip(*columns, strict=True):
                kind = (VARIANTS.get(variant) or TUNE[variant]).kind
                ended = len(valid) == study.epochs
                row = {"study": study.name, **facts, "variant": variant, "kind": kind, "seed": seed}
                row |= {"loss": valid[-1] if ended else None, "valid": valid, "train": train}
                rows.setdefault((study.name, variant, seed), row)
    frame = pl.DataFrame([*rows.values()], schema=SCHEMA)
    return frame.sort("draw", "study", "kind", "variant", "seed")


VOCABULARY = {"captions": 251, "characters": 69, "recall": 21, "parity": 7}
"""Vocabulary of each task."""


def failure_loss(task: str) -> float:
    """Return the loss that a diverged run counts as: twice that of a uniform guess."""
    return 2 * math.log(VOCABULARY[task])


if __name__ == "__main__":
    main()
