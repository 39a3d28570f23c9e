"""Train rows of the atlas again and print both results.

    python tools/repeat.py modern_mamba-captions 'cut gate'
    python tools/repeat.py --random 10 --minutes 3 --seed 1
    python tools/repeat.py ngrams-captions 'Kneser-Ney 1-gram' --dry-run

A repetition runs the sweep of the row's command for the point and its reference, in a folder of its
own under `runs/repeat`. With `--seed` it has other seeds, and is a new measurement: its difference
should be inside the interval of the row in about 83 % of the rows if all 95 % intervals are right
and as wide as the new one. Without it, only the choice of the setting can differ, where its rule
has changed. `--random N` takes rows that need no files and no older commit and took at most
`--minutes` of training. With `--dry-run` the sweep only plans, and the table has the recorded numbers twice.
"""

import argparse
import random
import shlex
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError, near
from lmzoo.lab.analysis.formatting import format_mean
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.verdict_lines import verdict_text

ROOT = Path(__file__).parents[1]
STORES = ROOT / "runs/repeat"
RECORDS = ROOT / "docs/results/records"
FILES = ("multi30k", "cath", "text", "shakespeare")
"""Corpora, by the start of their names, that are read from files."""
ROUNDED = 1e-6
"""The atlas has six decimals; models of counts have no interval."""


def main() -> None:
    """Repeat one row, or some at random."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", nargs="?", help="Name of the file of records.")
    parser.add_argument("point", nargs="?", help="Label of the point.")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N rows at random.")
    parser.add_argument("--minutes", type=float, default=3.0, help="Most training of such a row.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the sweep; and of --random.")
    parser.add_argument("--data-dir", type=Path, default=ROOT, help="Folder of the corpora.")
    parser.add_argument("--dry-run", action="store_true", help="Train nothing.")
    options = parser.parse_args()
    frame = pl.read_parquet(ROOT / "docs/results/atlas.parquet")
    rows = (
        chosen(frame, options.random, options.minutes, options.seed)
        if options.random
        else [found(frame, options.study, options.point)]
    )
    print("| study | point | recorded | repeated | inside | verdicts |\n|---|---|---|---|---|---|")  # noqa: T201
    if options.dry_run:
        print("a dry run: the repeated numbers are those of the record", file=sys.stderr)  # noqa: T201
    for row in rows:
        new = repeated(row, options.seed, options.data_dir.resolve(), dry_run=options.dry_run)
        print(line(row, new), flush=True)  # noqa: T201


def found(frame: pl.DataFrame, study: str | None, point: str | None) -> dict[str, Any]:
    """Return a row of the atlas.

    Raises:
        UserError: There is none, or its cell has changed since.
    """
    rows = frame.filter(study=study).to_dicts()
    if not rows:
        raise UserError(f"no study {study!r}{near(str(study), frame['study'].unique().sort())}")
    labels = [row["point"] for row in rows]
    if point not in labels:
        raise UserError(f"{study} has no point {point!r}{near(str(point), labels)}")
    row = rows[labels.index(point)]
    if row["changed"]:
        raise UserError(
            f"{point!r} of {study} has other fields now; run this at commit "
            f"{row['commit']}: {row['command']}"
        )
    return row


def chosen(frame: pl.DataFrame, count: int, minutes: float, seed: int) -> list[dict[str, Any]]:
    """Return rows at random of those that can be repeated here."""
    files = pl.any_horizontal(pl.col("corpus").str.starts_with(name) for name in FILES)
    compared = pl.col("difference").is_not_null() & (pl.col("verdict") != "")
    rows = frame.filter(~files, ~pl.col("changed"), compared, pl.col("minutes") <= minutes)
    return random.Random(seed).sample(rows.to_dicts(), min(count, len(rows)))


def repeated(row: Mapping[str, Any], seed: int, folder: Path, *, dry_run: bool) -> dict[str, Any]:
    """Train the point of a row and its reference, and return its row of the ranking."""
    words = shlex.split(row["command"])
    store = STORES / f"{row['study']}-{zlib.crc32(row['point'].encode()):08x}"
    command = [sys.executable, str(ROOT / words[1]), *words[2:], "--out", str(store), "--quiet"]
    if seed:
        command[command.index("--seed") + 1 : command.index("--seed") + 2] = [str(seed)]
    if dry_run:
        command.append("--dry-run")
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if dry_run:
        path = RECORDS / f"{row['study']}.parquet"
    else:
        (path,) = store.iterdir()
    ranked = study_ranking(path).frame.to_dicts()
    return next(other for other in ranked if other["label"] == row["point"])


def line(row: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the line of a table: both differences, and whether the new one is inside."""
    inside = row["low"] - ROUNDED <= new["difference"] <= row["high"] + ROUNDED
    recorded = format_mean(*(row[x] for x in ("difference", "low", "high")), form="+.3f")
    again = format_mean(
        *(new[x] for x in ("difference", "difference_low", "difference_high")), form="+.3f"
    )
    verdicts = f"{row['verdict']} / {verdict_text(new)}"
    words = (row["study"], row["point"], recorded, again, "yes" if inside else "no", verdicts)
    return f"| {' | '.join(words)} |"


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
