"""The archive of a study: ended runs in a few files.

    RUNS/<study>/ended/00001.zip      at most `RUNS` runs
        RUN/config.json ...           the files of its folder, which `unzip` makes again
        index.json                    for each run its name, and the sizes of its config and records
        index.data                    configs and records, one after another


The archive is written and renamed before the folders are deleted, their configs first. So a folder
with a config is the run, also when a sweep continues it; without one, the archive has the run. If
several archives have it, the last one counts. Standard library only.
"""

import contextlib
import functools
import json
import os
import shutil
import zipfile
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from lmzoo.lab.store.records import CONFIG, PREVIOUS, RECORDS, parse_json

FOLDER, INDEX, DATA = "ended", "index.json", "index.data"
RUNS, BYTES = 1000, 1 << 28
"""Most runs of a file, and the bytes after which another one begins."""


def archived_runs(study: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield name, config and records of each archived run; the last one of a name counts."""
    for path in _files(study):
        with zipfile.ZipFile(path) as file:
            data, at = file.read(DATA), 0
            for name, config, records in json.loads(file.read(INDEX)):
                end = at + config + records
                yield name, data[at : at + config], data[at + config : end]
                at = end


def archived_files(study: Path, patterns: Sequence[str]) -> Iterator[tuple[str, str, bytes]]:
    """Yield run, name and content of the matching files; the last one of a name counts."""
    for path in _files(study):
        with zipfile.ZipFile(path) as file:
            for member in file.namelist():
                run, _, name = member.partition("/")
                if name and any(fnmatch(name, pattern) for pattern in patterns):
                    yield run, name, file.read(member)


def read_run_file(study: Path, run: str, name: str) -> bytes | None:
    """Return a file of a run, from its folder or from the archive; None if there is none."""
    folder = study / run
    if (folder / CONFIG).exists() or (path := _find(study, run)) is None:
        with contextlib.suppress(OSError):
            return (folder / name).read_bytes()
        return None
    with contextlib.suppress(KeyError):
        return _open(path, path.stat().st_mtime_ns).read(f"{run}/{name}")
    return None


def read_config(study: Path, run: str) -> Any:
    """Return the config of a run, from its folder or from the archive; None if it is unreadable."""
    return parse_json(read_run_file(study, run, CONFIG))


def archive_runs(study: Path, runs: Sequence[str]) -> None:
    """Move the folders of runs into the archive; one without a folder is skipped."""
    folders = [study / run for run in runs if (study / run / CONFIG).exists()]
    for group in _groups(folders):
        last = max((int(path.stem) for path in _files(study)), default=0)
        _write(study / FOLDER / f"{last + 1:05}.zip", group)
        for folder in group:
            (folder / CONFIG).unlink()
            shutil.rmtree(folder)


def restore_run(study: Path, run: str) -> None:
    """Write the folder of an archived run again, unless it exists; its config is written last."""
    path = None if (study / run / CONFIG).exists() else _find(study, run)
    if path is not None:
        with zipfile.ZipFile(path) as file:
            names = [name for name in file.namelist() if name.startswith(f"{run}/")]
            file.extractall(study, sorted(names, key=lambda name: name == f"{run}/{CONFIG}"))


def _files(study: Path) -> list[Path]:
    return sorted((study / FOLDER).glob("[0-9]*.zip"))


def _find(study: Path, run: str) -> Path | None:
    for path in reversed(_files(study)):
        if run in _runs(path, path.stat().st_mtime_ns):
            return path
    return None


@functools.lru_cache(maxsize=256)
def _open(path: Path, _changed: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


@functools.lru_cache(maxsize=1000)
def _runs(path: Path, changed: int) -> Collection[str]:
    return {name.partition("/")[0] for name in _open(path, changed).namelist()}


def _groups(folders: Sequence[Path]) -> Iterator[list[Path]]:
    group, size = list[Path](), 0
    for folder in folders:
        group.append(folder)
        size += sum(file.stat().st_size for file in folder.iterdir())
        if len(group) == RUNS or size > BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _write(target: Path, folders: Sequence[Path]) -> None:
    target.parent.mkdir(exist_ok=True)
    for unfinished in target.parent.glob(".*"):  # of a process that was killed
        unfinished.unlink()
    partial = target.with_name(f".{target.name}")
    sizes, parts = list[tuple[str, int, int]](), list[bytes]()
    with partial.open("wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for folder in folders:
                names = sorted({path.name for path in folder.iterdir()} - {PREVIOUS})
                files = {name: (folder / name).read_bytes() for name in names}
                for name, data in files.items():
                    archive.writestr(f"{folder.name}/{name}", data)
                config, records = files.get(CONFIG, b""), files.get(RECORDS, b"")
                sizes.append((folder.name, len(config), len(records)))
                parts += [config, records]
            archive.writestr(INDEX, json.dumps(sizes))
            archive.writestr(DATA, b"".join(parts))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
