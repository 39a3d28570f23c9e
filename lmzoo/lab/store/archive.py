"""The archive of a study: ended runs in a few files.

    RUNS/<study>/ended/00001.zip      at most `RUNS` runs
        RUN/config.json ...           the files of its folder, which `unzip` makes again

A sweep moves ended runs here when a thousand wait, and at its end. The archive is written and
renamed before the folders are deleted, their configs first. So a folder with a config is the run,
also when a sweep continues it; without one, the archive has the run. If several archives have it,
the last one counts; a file of which each run has a later one is deleted. Standard library only.
"""

import contextlib
import functools
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError, writing
from lmzoo.base.foreign import all_below, below, check_archive, is_plain, most_bytes, read_regular
from lmzoo.lab.store.local import file_mark, temporary_folder
from lmzoo.lab.store.records import CONFIG, OTHERS, PREVIOUS, RECORDS, USER_CODE, parse_json

FOLDER = "ended"
RUNS, BYTES = 1000, 1 << 28
"""Most runs of a file, and the bytes after which another one begins."""


DAMAGE = (
    zipfile.BadZipFile,
    RuntimeError,  # a damaged bit says that a file is encrypted; also NotImplementedError
    EOFError,
    ValueError,
    struct.error,
    zlib.error,
)
"""What `zipfile` raises for a damaged file."""
MARK = b"PK\3\4"
"""Begins the header of a member."""
HEADER = 30
"""Bytes of this header without the name."""


class Archive:
    """One file. If it is damaged, the members are found by their own headers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damage = ""
        """What a table says of the file; "" if it is whole."""
        self._found: dict[str, bytes] | None = None
        """The members of a damaged file."""
        try:
            self._zip = zipfile.ZipFile(path)
            check_archive(self._zip, path, path.stat().st_size)
            self.members = set(self._zip.namelist())
            runs = {run for run, slash, _ in (n.partition("/") for n in self.members) if slash}
            if not {f"{run}/{name}" for run in runs for name in (CONFIG, RECORDS)} <= self.members:
                raise zipfile.BadZipFile(path)
        except FileNotFoundError:
            raise
        except (*DAMAGE, OSError):  # also a folder, and an archive beyond all limits
            self._search()

    @property
    def run_names(self) -> list[str]:
        """The runs that have a config."""
        parts = (name.partition("/") for name in self.members)
        return sorted(run for run, _, name in parts if name == CONFIG and is_plain(run))

    def read(self, name: str) -> bytes | None:
        """Return a member; None if it is missing or damaged."""
        if self._found is None:
            with contextlib.suppress(*DAMAGE, OSError):  # a place before the file, too
                return self._zip.read(name) if name in self.members else None
            self._search()
        return (self._found or {}).get(name)

    def runs(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield name, config and records of each run."""
        for run in self.run_names:
            yield run, self.read(f"{run}/{CONFIG}") or b"", self.read(f"{run}/{RECORDS}") or b""

    def _search(self) -> None:
        self._found = _scan(self._path.read_bytes() if self._path.is_file() else b"")
        self.members = set(self._found)
        self.damage = f"{self._path} is damaged; {len(self.run_names)} runs are read"


def run_folders(study: Path) -> set[str]:
    """Return the runs of a study that have a folder."""
    with os.scandir(study) as entries:
        found = {entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."}
    return found - {*OTHERS, FOLDER}


def archives(study: Path) -> list[Archive]:
    """Return the files of a study's archive; the last one that has a run counts."""
    with contextlib.suppress(FileNotFoundError):
        return [_open(path, file_mark(path)) for path in _files(study)]
    return archives(study)  # a sweep has deleted a file, after it wrote one that replaces it


def archived_runs(study: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield name, config and records of each archived run; the last one of a name counts."""
    for archive in archives(study):
        yield from archive.runs()


def archived_files(study: Path, patterns: Sequence[str]) -> Iterator[tuple[str, str, Archive]]:
    """Yield run, name and archive of the matching files; the last one of a name counts."""
    for archive in archives(study):
        for member in sorted(archive.members):
            run, _, name = member.partition("/")
            if name and any(fnmatch(name, pattern) for pattern in patterns):
                yield run, name, archive


def read_run_file(study: Path, run: str, name: str) -> bytes | None:
    """Return a file of a run, from its folder or from the archive; None if there is none."""
    folder = study / run
    if (folder / CONFIG).exists() or (archive := _find(study, run)) is None:
        with contextlib.suppress(OSError):
            return read_regular(folder / name)
        return None
    return archive.read(f"{run}/{name}")


def read_config(study: Path, run: str) -> Any:
    """Return the config of a run, from its folder or from the archive; None if it is unreadable."""
    return parse_json(read_run_file(study, run, CONFIG))


def archive_runs(study: Path, runs: Sequence[str]) -> None:
    """Move the folders of runs into the archive; one without a folder is skipped."""
    below(study, FOLDER)  # files are deleted there
    folders = [study / run for run in runs if _fits(study / run)]
    for group in _groups(folders):
        last = max((int(path.stem) for path in _files(study)), default=0)
        _write(study / FOLDER / f"{last + 1:05}.zip", group)
        for folder in group:
            (folder / CONFIG).unlink()
            shutil.rmtree(folder)
    later = set[str]()
    for path in reversed(_files(study)):
        runs_of_file = {*_open(path, file_mark(path)).run_names}
        if runs_of_file <= later:
            path.unlink()
        later |= runs_of_file


def restore_run(study: Path, run: str) -> Path:
    """Return the folder of a run; an archived one gets it again, or a temporary one."""
    archive = None if (study / run / CONFIG).exists() else _find(study, run)
    if archive is None:
        return study / run
    target = study
    if not os.access(study, os.W_OK):
        target = temporary_folder("run")
        (target / USER_CODE).symlink_to((study / USER_CODE).resolve())
    names = [n for n in archive.members if n.startswith(f"{run}/") and not n.endswith("/")]
    paths = all_below(target, sorted(names, key=lambda name: name == f"{run}/{CONFIG}"))
    for name, path in paths.items():
        with writing(path):
            path.write_bytes(archive.read(name) or b"")
    return target / run


def _fits(folder: Path) -> bool:
    """Return whether the folder of a run is there, and an archive gives all of its files again."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    try:
        below(folder.parent, folder.name)
        all_below(folder, (path.relative_to(folder).as_posix() for path in files))
    except UserError:
        return False
    return (folder / CONFIG).exists()


def _files(study: Path) -> list[Path]:
    found = (study / FOLDER).glob("[0-9]*.zip")
    return sorted(path for path in found if path.is_file() or path.is_dir())  # no pipe


def _find(study: Path, run: str) -> Archive | None:
    return next((a for a in reversed(archives(study)) if f"{run}/{CONFIG}" in a.members), None)


@functools.lru_cache(maxsize=256)
def _open(path: Path, _mark: tuple[int, ...]) -> Archive:
    return Archive(path)


def _scan(data: bytes) -> dict[str, bytes]:
    """Return the members whose headers, content and checksums are whole."""
    found = dict[str, bytes]()
    left = most_bytes(len(data))
    at = data.find(MARK)
    while at >= 0:
        end = at + len(MARK)
        with contextlib.suppress(struct.error, zlib.error, ValueError):
            fields = struct.unpack_from("<8xH4xLLLHH", data, at)
            method, checksum, packed, _, name_size, extra = fields
            name = at + HEADER
            content = name + name_size + extra
            text = data[content : content + packed]
            if method == zipfile.ZIP_DEFLATED:
                text = zlib.decompressobj(-15).decompress(text, max(1, left))
                left -= len(text)
            if zlib.crc32(text) == checksum:
                found[data[name : name + name_size].decode()] = text
                end = content + packed  # a checkpoint has members of its own
        at = data.find(MARK, end)
    return found


def _groups(folders: Sequence[Path]) -> Iterator[list[Path]]:
    group, size = list[Path](), 0
    for folder in folders:
        group.append(folder)
        size += sum(file.stat().st_size for file in folder.rglob("*"))
        if len(group) == RUNS or size > BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _write(target: Path, folders: Sequence[Path]) -> None:
    target.parent.mkdir(exist_ok=True)
    for unfinished in target.parent.glob(".*.zip"):  # of a process that was killed
        unfinished.unlink()
    partial = target.with_name(f".{target.name}")
    with partial.open("wb") as file:
        # Arrays hardly shrink.
        with zipfile.ZipFile(file, "w", compresslevel=1, strict_timestamps=False) as archive:
            for folder in folders:
                files = (path for path in sorted(folder.rglob("*")) if path.is_file())
                for path in files:
                    if path.name != PREVIOUS:
                        way = zipfile.ZIP_DEFLATED if "json" in path.suffix else None
                        archive.write(path, path.relative_to(folder.parent), way)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
