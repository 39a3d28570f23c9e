"""The files of a study's runs: from its folder and its archive, or from a Parquet file of records.

All files of a kind are read in one pass. To look for a run in each archive makes the time quadratic
in the number of runs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmzoo.base.foreign import read_regular
from lmzoo.lab.analysis.study_parquet import SUFFIX, read_files
from lmzoo.lab.store import records as files
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.archive import (
    Archive,
    archives,
    read_config,
    read_run_file,
    run_folders,
)
from lmzoo.lab.store.local import Store


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
    archive_of = {}
    copies = []
    found = archives(path)  # after the folders: a sweep moves runs there
    for archive in found:
        for run in archive.run_names:
            if run in archive_of:
                earlier = _records(archive_of[run], run)
                copies.append((run, earlier))
            archive_of[run] = archive
    for run in sorted(folders & archive_of.keys()):
        copies.append((run, _records(archive_of[run], run)))
    return StoredRuns(
        runs=_in_order(path, folders, archive_of),
        total=len(folders.union(archive_of)),
        damage=[archive.damage for archive in found if archive.damage],
        copies=copies,
    )


def _in_order(
    path: Path, folders: set[str], archive_of: Mapping[str, Archive]
) -> Iterator[tuple[str, Any, bytes]]:
    """Yield the runs one at a time, because all of them together need gigabytes."""
    for run in sorted(folders.union(archive_of)):
        archive = archive_of.get(run)
        if run in folders:
            config = files.parse_json(_bytes(path, run, files.CONFIG))
            records = _bytes(path, run, files.RECORDS)
            if isinstance(config, dict) and (records or archive):
                yield run, config, records
                continue
            if archive is None:
                # A sweep may have archived it since.
                records = read_run_file(path, run, files.RECORDS) or b""
                yield run, read_config(path, run), records
                continue
        assert archive is not None, "a run has a folder, or is archived"
        config = archive.read(f"{run}/{files.CONFIG}")
        yield run, files.parse_json(config), _records(archive, run)


def _records(archive: Archive, run: str) -> bytes:
    return archive.read(f"{run}/{files.RECORDS}") or b""


def packed_study(path: Path) -> tuple[Any, StoredRuns]:
    """Return the content of `study.json` and the runs of a Parquet file of records."""
    frame = read_files(path)
    kinds = frame.drop("content").with_row_index("at")
    places = defaultdict(dict)
    for at, run, name in kinds.iter_rows():
        places[name][run] = at
    content = frame["content"]
    configs = places[files.CONFIG]

    def runs() -> Iterator[tuple[str, Any, bytes]]:
        for run in sorted(configs):
            config = files.parse_json(content[configs[run]])
            at = places[files.RECORDS].get(run)
            records = b""
            if at is not None:  # a run that has not begun has no records
                records = content[at]
            yield run, config, records

    study = content[places[files.STUDY][""]]
    return files.parse_json(study), StoredRuns(runs(), len(configs))


def study_file(path: Path | str, name: str) -> bytes:
    """Return a file of the study itself; empty if it does not exist."""
    if not str(path).endswith(SUFFIX):
        return open_store(path).read(name) or b""
    stored = read_files(Path(path))
    found = stored.filter(folder="", file=name)
    return b"".join(found["content"])  # it is there once, or not at all


def _bytes(path: Path, run: str, name: str) -> bytes:
    """Return a file's content; empty if it does not exist."""
    folder = f"{path}/{run}"  # a Path is as slow as reading its file
    try:
        return read_regular(f"{folder}/{name}")
    except FileNotFoundError:
        return b""
    except OSError:  # `Store` retries, and its error says what is wrong
        return Store(Path(folder)).read(name) or b""
