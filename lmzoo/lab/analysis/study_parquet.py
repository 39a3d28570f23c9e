"""The records of a study in one Parquet file, which is small enough for a repository.

    folder    name of the run's folder; "" for the files of the study
    file      study.json, settings.ndjson, config.json, records.ndjson
    content   the file, byte for byte

The file has what tables are computed from and what a sweep needs to continue: runs that have ended
are not trained again. It has no checkpoints and no text of the corpus. The name of the machine that
trained an epoch and the folder of the study's script are left out, and so is an incomplete last
line.
"""

import contextlib
import io
import itertools
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import polars as pl
from polars import DataFrame, String

from lmzoo.base.errors import UserError
from lmzoo.base.foreign import below, checked, parts_of, read_regular
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.archive import archived_files
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import (
    CHECKSUM,
    CONFIG,
    STUDY,
    is_sealed,
    json_bytes,
    parse_json,
    sealed,
)

SUFFIX = ".parquet"
LINES = "*.ndjson"
FILES = ("*.json", LINES)
COLUMNS = pl.Schema({"folder": String, "file": String, "content": pl.Binary})
PAGE = 1 << 28
GROUP = 20_000
"""Bytes and files that are compressed together: many, as configs of a study are nearly equal."""
HOST = re.compile(rb', "host": "(?:[^"\\]|\\.)*"')
SEAL = f', "{CHECKSUM}"'.encode()
PART = 1000
"""Files that are in memory twice."""
LEVEL = 9
"""Of zstd. 19 takes 40 times as long for files that are a quarter smaller."""


def save_study(store: Store | Path | str, path: Path) -> int:
    """Write the records of a study to a Parquet file and return its size in bytes.

    A sweep may be running in the store. The file is replaced if it exists; a `UserError` says that
    its name does not end in .parquet, or that the store has no study.
    """
    if path.suffix != SUFFIX:
        raise UserError(f"{str(path)!r} does not end in {SUFFIX}")
    folder = open_store(store).local_copy(FILES)
    if not (folder / STUDY).exists():
        raise UserError(f"{str(store)!r} has no {STUDY}; give the folder of a study, as runs/NAME")
    rows = _rows(folder)
    parts = []
    part = list(itertools.islice(rows, PART))
    while part:
        parts.append(DataFrame(part, COLUMNS, orient="row"))
        part = list(itertools.islice(rows, PART))
    buffer = io.BytesIO()
    # Sorted, equal studies have equal bytes, and files that are nearly equal stand together.
    frame = pl.concat(parts).sort("file", "folder")
    frame.write_parquet(
        buffer,
        compression="zstd",
        compression_level=LEVEL,
        statistics=False,
        data_page_size=PAGE,
        row_group_size=GROUP,
    )
    content = buffer.getvalue()
    Store(path.parent).write(path.name, content)
    return len(content)


def restore_study(path: Path, store: Store | Path | str) -> int:
    """Write the runs of a Parquet file into a store and return their number.

    A `UserError` says that the store has files; the others are those of `read_rows`.
    """
    target = open_store(store)
    rows = read_rows(path)
    # A store that was restored in part has configs, but no study.
    if target.read(STUDY) is not None or target.prefetch(CONFIG):
        raise UserError(f"{target} is not empty; give a new folder, or delete it")
    study = b""
    runs = set()
    for folder, file, content in rows:
        if folder:
            runs.add(folder)
            (target / folder).write(file, content)
        elif file == STUDY:
            study = content
        else:
            target.write(file, content)
    # Last, so that a store that was restored in part is no study.
    target.write(STUDY, study)
    return len(runs)


def read_rows(path: Path) -> list[tuple[str, str, bytes]]:
    """Return folder, file and content of each file; errors are those of `read_files`."""
    return read_files(path).rows()


def read_files(path: Path) -> DataFrame:
    """Return the frame of a file of records; a `UserError` if it is none."""
    try:
        with polars_errors():
            frame = pl.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"no file {str(path)!r}") from None
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{str(path)!r} is not a file of records: {error}") from None
    if frame.schema != COLUMNS or len(frame.drop_nulls()) < len(frame):
        raise UserError(f"{str(path)!r} has no columns {', '.join(COLUMNS)}")
    rows = frame.select("folder", "file").rows()
    names = [f"{folder}/{file}".removeprefix("/") for folder, file in rows]
    others = list(itertools.filterfalse(_is_of_study, checked(names)))
    if others:
        raise UserError(f"{str(path)!r} has {others[0]!a}, which is no file of records")
    if ("", STUDY) not in rows:
        raise UserError(f"{str(path)!r} has no {STUDY}; write it with `lmzoo records save`")
    return frame


@contextlib.contextmanager
def polars_errors() -> Iterator[None]:
    """Keep what polars prints of a damaged file from the terminal; its panic is a ValueError."""
    # polars prints from Rust, past `sys.stderr`.
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    except pl.exceptions.PanicException as error:
        raise ValueError("it is damaged") from error
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _is_of_study(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    is_hidden = name.startswith(".") or file.startswith(".")
    if "/" in folder or is_hidden:
        return False
    return any(fnmatch(file, pattern) for pattern in FILES)


def _rows(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    names = {""}
    for config in folder.glob(f"[!.]*/{CONFIG}"):
        names.add(config.parent.name)
    for name in names:
        for path in (folder / name).iterdir():
            if _is_of_study(path.name):
                place = path.relative_to(folder)
                # A link in a folder of somebody else may lead to any file.
                content = read_regular(below(folder, place.as_posix()))
                yield name, path.name, _public(path.name, content)
    # After the folders: a running sweep moves runs into archives.
    archive_of = {(run, name): archive for run, name, archive in archived_files(folder, FILES)}
    for (run, name), archive in archive_of.items():
        parts_of(run)
        if "/" not in name and run not in names:
            content = archive.read(f"{run}/{name}") or b""
            yield run, name, _public(name, content)


def _public(name: str, content: bytes) -> bytes:
    """Return a file without the names of machines and their folders."""
    if name == STUDY:
        return _without_folder(content)
    if not fnmatch(name, LINES):
        return content
    complete = content[: content.rfind(b"\n") + 1]  # a damaged line is unchanged
    lines = complete.splitlines(keepends=True)
    return b"".join(map(_without_host, lines))


def _without_folder(content: bytes) -> bytes:
    """Return a study without typed words and folders: an absolute path becomes FOLDER/NAME.py."""
    study = parse_json(content)
    if not isinstance(study, dict):
        return content
    public = dict(study)
    # The words that were typed may name the user's folders.
    public.pop("given", None)
    if study.get("script"):
        public["script"] = list(map(_without_root, study["script"]))
    # What needs no change stays equal byte for byte.
    if public == study:
        return content
    return json_bytes(public)


def _without_root(word: str) -> str:
    path = Path(word)
    if not path.is_absolute():
        return word
    return "/".join(path.parts[-2:])


def _without_host(line: bytes) -> bytes:
    # To parse and write each line would take most of the time of a file.
    text = HOST.sub(b"", line)
    head, mark, _ = text.rpartition(SEAL)
    if text == line or not mark:
        return text
    # A new seal would make a damaged line a whole one.
    if not is_sealed(line.rstrip(b"\n")):
        return line
    return sealed(f"{head.decode()}}}").encode() + b"\n"
