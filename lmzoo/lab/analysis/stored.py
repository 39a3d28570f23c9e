"""The files of a study's runs: from its folder and its archive, or from a Parquet file of records.

All files of a kind are read in one pass. To look for a run in each archive makes the time quadratic
in the number of runs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmzoo.base.foreign import read_regular
from lmzoo.lab.analysis.study_parquet import SUFFIX, read_rows
from lmzoo.lab.store import records as files
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.archive import (
    archived_runs,
    archives,
    read_config,
    read_run_file,
    run_folders,
)
from lmzoo.lab.store.local import Store

Content = tuple[bytes, bytes]
"""The config and the records of a run."""


class StoredRuns(NamedTuple):
    """What a store has of its runs."""

    runs: Iterator[tuple[str, Any, bytes]]
    """Name, config (any value if it is damaged) and records of each run, in the order of names."""
    total: int
    damage: Sequence[str] = ()
    """What is said of damaged archives."""
    copies: Sequence[tuple[str, bytes]] = ()
    """Runs that the store has once more, and those records."""


def stored_runs(path: Path) -> StoredRuns:
    """Return the runs of a study's folder and of its archive."""
    folders = run_folders(path)
    archived: dict[str, Content] = {}
    copies: list[tuple[str, bytes]] = []
    for run, text, records in archived_runs(path):  # after the folders: a sweep moves runs there
        if run in archived:
            copies.append((run, archived[run][1]))
        archived[run] = text, records
    copies += [(run, archived[run][1]) for run in sorted(folders & archived.keys())]
    damage = [archive.damage for archive in archives(path) if archive.damage]
    count = len(folders | archived.keys())
    return StoredRuns(_in_order(path, folders, archived), count, damage, copies)


def _in_order(
    path: Path, folders: set[str], archived: dict[str, Content]
) -> Iterator[tuple[str, Any, bytes]]:
    for run in sorted({*folders, *archived}):
        known = archived.pop(run, None)
        if run in folders:
            config = files.parse_json(_bytes(path, run, files.CONFIG))
            records = _bytes(path, run, files.RECORDS)
            is_whole = isinstance(config, dict)
            if is_whole and (records or known):
                yield run, config, records
                continue
            if known is None:
                # A sweep may have archived it since.
                yield run, read_config(path, run), read_run_file(path, run, files.RECORDS) or b""
                continue
        assert known is not None, "a run has a folder, or is archived"
        yield run, files.parse_json(known[0]), known[1]


def packed_study(path: Path) -> tuple[Any, StoredRuns]:
    """Return the content of `study.json` and the runs of a Parquet file of records."""
    found: dict[str, dict[str, bytes]] = {files.STUDY: {}, files.CONFIG: {}, files.RECORDS: {}}
    for run, name, content in read_rows(path):
        if name in found:
            found[name][run] = content
    records = found[files.RECORDS]
    configs = sorted(found[files.CONFIG].items())
    runs = ((run, files.parse_json(text), records.get(run, b"")) for run, text in configs)
    return files.parse_json(found[files.STUDY][""]), StoredRuns(runs, len(configs))


def study_file(path: Path | str, name: str) -> bytes:
    """Return a file of the study itself; empty if it does not exist."""
    if not str(path).endswith(SUFFIX):
        return open_store(path).read(name) or b""
    for run, own, content in read_rows(Path(path)):
        if own == name and not run:
            return content
    return b""


def _bytes(path: Path, run: str, name: str) -> bytes:
    """Return a file's content; empty if it does not exist."""
    folder = f"{path}/{run}"  # a Path is as slow as reading its file
    try:
        return read_regular(f"{folder}/{name}")
    except FileNotFoundError:
        return b""
    except OSError:  # `Store` retries, and its error says what is wrong
        return Store(Path(folder)).read(name) or b""
