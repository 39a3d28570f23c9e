"""The archive of a study: ended runs in a few files.

    RUNS/<study>/ended/00001.zip      at most `RUNS` runs
        RUN/config.json ...           the files of its folder, which `unzip` makes again

A sweep moves ended runs here when a thousand wait, and at its end. The archive is written and
renamed before the folders are deleted, their configs first. So a folder with a config is the run,
also when a sweep continues it; without one, the archive has the run. If several archives have it,
the last one counts; a file of which each run has a later one is deleted. Standard library only.
"""

import functools
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from lmzoo.base.errors import UserError, writing
from lmzoo.base.foreign import all_below, below, check_archive, is_plain, most_bytes, read_regular
from lmzoo.lab.store.local import file_mark, temporary_folder
from lmzoo.lab.store.records import CONFIG, OTHERS, PREVIOUS, RECORDS, USER_CODE, parse_json

FOLDER = "ended"
RUNS = 1000
BYTES = 1 << 28
"""Most runs of a file, and the bytes after which another one begins."""
DAMAGE = (
    zipfile.BadZipFile,
    RuntimeError,  # a damaged bit says that a file is encrypted; also NotImplementedError
    EOFError,
    ValueError,
    struct.error,
    zlib.error,
    OSError,  # a folder of this name, or a member that begins before the file
)
"""What `zipfile` raises for a damaged file."""
MARK = b"PK\3\4"
"""Begins the header of a member."""
HEADER = 30
"""Bytes of this header without the name."""


class Archive:
    """One file. If it is damaged, the members are found by their own headers."""

    def __init__(self, path: Path):
        self._path = path
        self.damage = ""
        """What a table says of the file; "" if it is whole."""
        self._found = dict[str, bytes]()
        """The members of a damaged file."""
        try:
            self._zip = zipfile.ZipFile(path)
            # An archive beyond all limits counts as damaged.
            check_archive(self._zip, path, path.stat().st_size)
            self.members = set(self._zip.namelist())
            for member in self.members:
                run, slash, _ = member.partition("/")
                needed = {f"{run}/{CONFIG}", f"{run}/{RECORDS}"}
                if slash and not needed <= self.members:
                    raise zipfile.BadZipFile(path)
        except FileNotFoundError:
            raise
        except DAMAGE:
            self._search()

    @property
    def run_names(self) -> list[str]:
        """The runs that have a config."""
        found = []
        for member in self.members:
            run, _, name = member.partition("/")
            if name == CONFIG and is_plain(run):
                found.append(run)
        return sorted(found)

    def read(self, name: str) -> bytes | None:
        """Return a member; None if it is missing or damaged."""
        if name not in self.members:
            return None
        if not self.damage:
            try:
                return self._zip.read(name)
            except DAMAGE:
                self._search()
        return self._found.get(name)

    def _search(self):
        if self._path.is_file():
            self._found = _scan(self._path.read_bytes())
        self.members = set(self._found)
        self.damage = f"{self._path} is damaged; {len(self.run_names)} runs are read"


def run_folders(study: Path) -> set[str]:
    """Return the runs of a study that have a folder."""
    found = set[str]()
    with os.scandir(study) as entries:
        for entry in entries:
            # Hidden folders, as `.pack-WORKER`, are no runs.
            if entry.is_dir() and entry.name[0] != ".":
                found.add(entry.name)
    return found.difference(OTHERS, [FOLDER])


def archives(study: Path) -> list[Archive]:
    """Return the files of a study's archive; the last one that has a run counts."""
    with suppress(FileNotFoundError):
        return [_open(path, file_mark(path)) for path in _files(study)]
    return archives(study)  # a sweep has deleted a file, after it wrote one that replaces it


def archived_runs(study: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield name, config and records of each archived run; the last one of a name counts."""
    for archive in archives(study):
        for run in archive.run_names:
            config = archive.read(f"{run}/{CONFIG}")
            records = archive.read(f"{run}/{RECORDS}")
            yield run, config or b"", records or b""


def archived_files(study: Path, patterns: Sequence[str]) -> Iterator[tuple[str, str, Archive]]:
    """Yield run, name and archive of the matching files; the last one of a name counts."""
    for archive in archives(study):
        for member in sorted(archive.members):
            run, _, name = member.partition("/")
            if name and any(fnmatch(name, pattern) for pattern in patterns):
                yield run, name, archive


def read_run_file(study: Path, run: str, name: str) -> bytes | None:
    """Return a file of a run, from its folder or from the archive; None if there is none."""
    archive = _find(study, run)
    if archive is not None:
        return archive.read(f"{run}/{name}")
    with suppress(OSError):
        return read_regular(study / run / name)
    return None


def read_config(study: Path, run: str) -> Any:
    """Return the config of a run, from its folder or from the archive; None if it is unreadable."""
    return parse_json(read_run_file(study, run, CONFIG))


def archive_runs(study: Path, runs: Sequence[str]):
    """Move the folders of runs into the archive; one without a folder is skipped."""
    below(study, FOLDER)  # files are deleted there
    folders = [study / run for run in runs if _fits(study / run)]
    for group in _groups(folders):
        last = max((int(path.stem) for path in _files(study)), default=0)
        _write(study / FOLDER / f"{last + 1:05}.zip", group)
        for folder in group:
            # First: a folder with a config is the run, and the archive does not count.
            (folder / CONFIG).unlink()
            shutil.rmtree(folder)
    later = set[str]()
    for path in reversed(_files(study)):
        runs_of_file = set(_open(path, file_mark(path)).run_names)
        if runs_of_file <= later:  # the last one of a name counts
            path.unlink()
        later |= runs_of_file


def restore_run(study: Path, run: str) -> Path:
    """Return the folder of a run; an archived one gets it again, or a temporary one."""
    archive = _find(study, run)
    if archive is None:
        return study / run
    target = study
    if not os.access(study, os.W_OK):
        target = temporary_folder("run")
        (target / USER_CODE).symlink_to((study / USER_CODE).resolve())
    config = f"{run}/{CONFIG}"
    names = [
        name
        for name in archive.members - {config}
        if name.startswith(f"{run}/") and not name.endswith("/")
    ]
    # The config is written last: a folder that has one is the run.
    for name, path in all_below(target, names + [config]).items():
        with writing(path):
            path.write_bytes(archive.read(name) or b"")
    return target / run


def _fits(folder: Path) -> bool:
    """Return whether the folder of a run is there, and an archive gives all of its files again."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
    try:
        below(folder.parent, folder.name)
        all_below(folder, names)
    except UserError:
        return False
    return (folder / CONFIG).exists()


def _files(study: Path) -> list[Path]:
    zips = (study / FOLDER).glob("[0-9]*.zip")
    # No pipe, which would wait.
    return sorted(path for path in zips if path.is_file() or path.is_dir())


def _find(study: Path, run: str) -> Archive | None:
    """Return the archive that has a run; None if its folder counts, or there is no such run."""
    config = f"{run}/{CONFIG}"
    if not (study / config).exists():
        for archive in reversed(archives(study)):
            if config in archive.members:
                return archive
    return None


@functools.lru_cache(maxsize=256)
def _open(path: Path, _mark: tuple[int, ...]) -> Archive:
    return Archive(path)


def _scan(data: bytes) -> dict[str, bytes]:
    """Return the members whose headers, content and checksums are whole."""
    found = dict[str, bytes]()
    left = most_bytes(len(data))  # foreign members may unpack to any size
    at = data.find(MARK)
    while at >= 0:
        end = at + len(MARK)
        with suppress(struct.error, zlib.error, ValueError):
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
    group = list[Path]()
    size = 0
    for folder in folders:
        group.append(folder)
        size += sum(file.stat().st_size for file in folder.rglob("*"))
        if len(group) == RUNS or size > BYTES:
            yield group
            group = []
            size = 0
    if group:
        yield group


def _write(target: Path, folders: Sequence[Path]):
    target.parent.mkdir(exist_ok=True)
    for unfinished in target.parent.glob(".*.zip"):  # of a process that was killed
        unfinished.unlink()
    partial = target.with_name(f".{target.name}")
    with partial.open("wb") as file:
        # Not strict: a file may be older than 1980, where the times of an archive begin.
        with zipfile.ZipFile(file, "w", compresslevel=1, strict_timestamps=False) as archive:
            for folder in folders:
                _add(folder, archive)
        file.flush()
        os.fsync(file.fileno())  # before the folders are deleted
    partial.replace(target)


def _add(folder: Path, archive: zipfile.ZipFile):
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name == PREVIOUS:
            continue
        method = zipfile.ZIP_STORED  # arrays hardly shrink
        if "json" in path.suffix:
            method = zipfile.ZIP_DEFLATED
        archive.write(path, path.relative_to(folder.parent), method)
