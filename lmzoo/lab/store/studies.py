"""Studies by their names: a folder, a file of records, or a name in the folder of the runs."""

from collections.abc import Iterable
from pathlib import Path

from lmzoo.base.errors import UserError
from lmzoo.lab.store.local import S3_SCHEME, is_owned
from lmzoo.lab.store.records import DRIVER_LOCK, STUDY

RUNS = Path("runs")


def find_study(text: Path | str, runs: Path = RUNS) -> Path:
    """Return the folder of a study: a path, a file of records, or a name in `runs`; or raise."""
    text = str(text)
    path = Path(text)
    if path.exists() or path.suffix == ".parquet" or len(path.parts) > 1 or S3_SCHEME.match(text):
        return path
    known = list_studies(runs)
    found = [study for study in known if study.name == text]
    found = found or [study for study in known if study.name.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{text!r} names {len(found)} studies: {listed(found)}; give one of them")
    raise UserError(f"no study {text!r}; {studies_hint(runs)}")


def list_studies(runs: Path) -> list[Path]:
    """Return the folders of the studies in the folder of the runs."""
    return sorted(path.parent for path in runs.glob(f"*/{STUDY}"))


def is_running(study: Path) -> bool:
    """Return whether a sweep of a study runs; a killed one leaves its lock."""
    return is_owned(study / DRIVER_LOCK)


def studies_hint(runs: Path) -> str:
    """Return which studies are in the folder of the runs."""
    studies = list_studies(runs)
    return f"studies in {runs}: {listed(studies)}" if studies else f"{runs} has no study"


def listed(paths: Iterable[Path], most: int = 8) -> str:
    """Return paths in a line, and how many more there are."""
    names = [str(path) for path in paths]
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
