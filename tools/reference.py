"""Train the studies of the results pages in sittings: `make reference DATA=DIR HOURS=8`.

By default the parts of the reference study; `--studies` names others of `published_studies.py`. A
sitting restores the records of a study from `docs/results/records`, if this machine has no store of
it, continues its sweep, and saves the records again. It ends when the hours are over or all studies
are complete; the next sitting may be on another machine. A study whose records are of an older
version of the numerics cannot continue: it is trained anew under `--out`, and its records stay.

DIR has the folders multi30k and cath with the files of the corpora, whose licences
do not allow a copy here. `--dry-run` prints the hours of each study: about 2 for the first.
"""

import argparse
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

from published_studies import EVERY, REFERENCE, STUDIES, PublishedStudy

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.study_parquet import read_rows, restore_study, save_study
from lmzoo.lab.store.records import NUMERICS, STUDY
from lmzoo.trainables.resolve import store_folder

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs/results/records"
STORES = ROOT / "runs/reference"
INTERRUPTED = 130
"""Exit code of a sweep that was stopped and can be continued."""


def main() -> int:
    """Continue the studies until the hours are over; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="Folder of the corpora.")
    parser.add_argument("--hours", type=float, default=8.0, help="Length of the sitting.")
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=list(REFERENCE))
    parser.add_argument("--out", type=Path, default=STORES, help="Folder of the stores.")
    parser.add_argument("--dry-run", action="store_true", help="Print what is left and its hours.")
    options = parser.parse_args()
    end = time.monotonic() + 3600 * options.hours
    for name in options.studies:
        print(f"== {name}", file=sys.stderr)  # noqa: T201
        out = options.out.resolve() / name
        code = _continue(name, options.data_dir.resolve(), out, end, dry_run=options.dry_run)
        if code:
            return 0 if code == INTERRUPTED else code
    return 0


def _continue(name: str, data_dir: Path, out: Path, end: float, *, dry_run: bool) -> int:
    """Continue a study until it is complete or the time ends; return the sweep's exit code."""
    study = STUDIES[name]
    file = RECORDS / f"{name}.parquet"
    store = store_folder(out, study.script.split()[-1], {"name": study.corpus})
    is_continued = not file.exists() or load_study(file).study["numerics"] == NUMERICS
    if not is_continued:
        print(f"{file.name} is of older numerics, and stays; {store} is new", file=sys.stderr)  # noqa: T201
    elif file.exists():
        _restore(file, store)
    process = subprocess.Popen(
        [*_command(study), "--data-dir", str(data_dir), "--out", str(store.parent)]
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
    if (store / STUDY).exists() and is_continued and not dry_run:
        save_study(store, file)
    return code


def _command(study: PublishedStudy) -> list[str]:
    script, *names = study.script.split()
    path = ROOT / f"sweeps/{script}.py"
    command = [sys.executable, str(path), *names, "--corpus", study.corpus, *study.options.split()]
    if study.points == EVERY:
        return command
    labels = [point.label for point in runpy.run_path(str(path))["STUDY"].points]
    chosen = [label for label in labels if re.fullmatch(study.points, label)]
    return [*command, "--points", ",".join(chosen)]


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
