"""Run the reference study in sittings: `make reference DATA=DIR HOURS=8`.

Each part is a study. A sitting restores the records of a part from `docs/results/records`, if this
machine has no store of it, continues its sweep, and saves the records again. It ends when the hours
are over or all parts are complete; the next sitting may be on another machine.

DIR has the folders multi30k, cath and tinyshakespeare with the files of the corpora, whose licences
do not allow a copy here. `--dry-run` prints the hours of each part: about 2 for the first.
"""

import argparse
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from lmzoo.analysis.study_parquet import read_rows, restore_study, save_study
from lmzoo.errors import UserError
from lmzoo.store.records import STUDY
from lmzoo.study.store_name import store_folder

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs/results/records"
STORES = ROOT / "runs/reference"
INTERRUPTED = 130
"""Exit code of a sweep that was stopped and can be continued."""
SMALL = "--set model.width=64 --set model.emission.components=90"
COSINE = "--set recipe.schedule=cosine --epochs 4"
S0_SIZE = "--set model.width=128 --set model.emission.components=400"


class Part(NamedTuple):
    """A study of the reference: its script in `sweeps/` and the options of the sweep."""

    script: str
    corpus: str
    options: str = ""
    points: str = ""
    """First letters of the labels to train; "" trains all."""


PARTS = {
    "reference-words": Part("reference", "multi30k_en"),
    "reference-proteins": Part("reference", "cath", SMALL),
    "reference-characters": Part("reference", "multi30k_en_char", SMALL),
    # The path is part of every run's identity, so it is relative to DIR.
    "reference-shakespeare": Part(
        *("reference", "text:tinyshakespeare/input.txt.gz"),
        f"{SMALL} --set corpus.unit=char",
    ),
    "reference-mutants": Part(
        *("gru_factorial", "multi30k_en"),
        # The study of the words chose the rate 0.01 at every point.
        "--set model.width=128 --set model.emission.components=128 --set recipe.batch=140"
        f" {COSINE} --set recipe.lr=0.01 --search-space recipe.lr=off --samples 1 --seeds 3",
        "mgu ",
    ),
    "reference-sound": Part(
        *("words", "multi30k_en"),
        f"{S0_SIZE} --set corpus.split=seed --set recipe.batch=280 {COSINE} --samples 3",
    ),
    "reference-published": Part(
        *("words", "multi30k_en"),
        f"{S0_SIZE} --set corpus.split=seed --recipe published --set model.norm=time_std"
        " --search-space recipe.lr=off --epochs 20 --samples 1",
    ),
}
"""In the order in which they are trained; the name is that of the file of records."""


def main() -> int:
    """Continue the parts until the hours are over; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="Folder of the corpora.")
    parser.add_argument("--hours", type=float, default=8.0, help="Length of the sitting.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--dry-run", action="store_true", help="Print what is left and its hours.")
    options = parser.parse_args()
    end = time.monotonic() + 3600 * options.hours
    for name in options.parts:
        print(f"== {name}", file=sys.stderr)  # noqa: T201
        code = _continue(name, options.data_dir.resolve(), end, dry_run=options.dry_run)
        if code:
            return 0 if code == INTERRUPTED else code
    return 0


def _continue(name: str, data_dir: Path, end: float, *, dry_run: bool) -> int:
    """Continue one part until it is complete or the time ends; return the sweep's exit code."""
    part, file = PARTS[name], RECORDS / f"{name}.parquet"
    store = store_folder(STORES / name, part.script, part.corpus)
    if file.exists():
        _restore(file, store)
    process = subprocess.Popen(
        [*_command(part), "--data-dir", str(data_dir), "--storage", str(store.parent)]
        + ["--dry-run"] * dry_run,
        cwd=data_dir,
    )
    try:
        code = process.wait(None if dry_run else max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        code = process.wait()
    except KeyboardInterrupt:  # the sweep got it, too
        code = process.wait()
    if (store / STUDY).exists() and not dry_run:
        save_study(store, file)
    return code


def _command(part: Part) -> list[str]:
    script = ROOT / f"sweeps/{part.script}.py"
    command = [sys.executable, str(script), "--corpus", part.corpus, *part.options.split()]
    if part.points:
        points = runpy.run_path(str(script))["STUDY"].points
        labels = [point.label for point in points if point.label.startswith(part.points)]
        command += ["--points", ",".join(labels)]
    return command


def _restore(file: Path, store: Path) -> None:
    """Restore the records, unless the store has all of their runs.

    Raises:
        UserError: The store lacks runs, so that saving it would lose their records.
    """
    if not store.exists():
        restore_study(file, store)
    elif lacking := {folder for folder, *_ in read_rows(file) if not (store / folder).exists()}:
        raise UserError(
            f"{store} lacks {len(lacking)} runs of {file.name}; delete the store to continue from "
            "the file"
        )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")
