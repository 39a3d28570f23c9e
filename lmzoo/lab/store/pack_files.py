"""The files of a pack: a worker writes once for all runs that it trains together.

    STUDY/.pack-WORKER/
        rows-0.safetensors    the state of all members after an epoch, stacked
        rows-1.safetensors    the state one write earlier, or later; overwritten alternately
        segment.ndjson        their events, one per line with its run, appended and flushed

A file is overwritten in place, because new pages cost more than the numbers in them; one that a
death left torn does not have its checksums, and the other one counts. As in the folder of a run,
the state has the records that the segment may lack and is written first.

The folder of a run gets its records and its checkpoint when the run leaves the pack: when it ends,
or goes on elsewhere. `unpack`, which needs the lock of a worker that died, gives each of its runs
the records that its folder lacks, and its rows as a checkpoint. A worker deletes the files when
none of its runs is open.

The rows, as the checkpoint of a run, are a file of named arrays in the safetensors format:

    8 bytes: length of the header | header, JSON | arrays, one after another

The header has the type, the shape and the place of each array, and text by name as
`__metadata__`. Here it has checksums, too. Such a file is written from arrays as they lie in
memory, which the library would copy first; it reads these files. Standard library only.
"""

import contextlib
import json
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from lmzoo.base.foreign import all_below
from lmzoo.base.plain import FieldsDict
from lmzoo.lab.store import records as files
from lmzoo.lab.store.archive import archives
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import Record, RunFolder
from lmzoo.lab.store.writer import LOG, Writer

Buffer = bytes | memoryview
METADATA, CHECKSUMS, NUMBER = "__metadata__", "crc32", "number"
RUNS, STATE, RUN = "runs", "state", "run"


class Array(NamedTuple):
    """An array as it lies in memory."""

    dtype: str
    """F32, F64, I64, ..."""
    shape: tuple[int, ...]
    data: Buffer


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[Buffer]:
    """Return the pieces of a file."""
    checksums = {name: zlib.crc32(array.data) for name, array in arrays.items()}
    header: FieldsDict = {METADATA: {**metadata, CHECKSUMS: json.dumps(checksums)}}
    begin = 0
    for name, array in arrays.items():
        end = begin + len(array.data)
        header[name] = {"dtype": array.dtype, "shape": array.shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)) + text, *(array.data for array in arrays.values())]


def decode(data: bytes) -> tuple[dict[str, str], dict[str, Array]]:
    """Return the metadata and the arrays of a file; a ValueError if it is damaged."""
    (length,) = struct.unpack_from("<Q", data)
    header, view = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
    metadata = header.pop(METADATA)
    checksums, arrays = json.loads(metadata.pop(CHECKSUMS)), {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = Array(entry["dtype"], tuple(entry["shape"]), view[begin:end])
        if end > len(view) or zlib.crc32(arrays[name].data) != checksums[name]:
            raise ValueError(f"{name} is damaged")
    return metadata, arrays


def split(data: bytes) -> tuple[int, list[tuple[str, dict, list[Buffer]]]]:
    """Return the number of a pack's file; and each run, its plain state, a file of its own rows.

    The metadata `runs` has, for each run, its rows by the name of the array, and its state. In the
    file of a run, arrays have the part of their name after the last dot. See `decode`.
    """
    metadata, stacked = decode(data)
    number, found = int(metadata.pop(NUMBER)), []
    for run in json.loads(metadata.pop(RUNS)):
        own = {}
        for name, row in run["rows"].items():
            dtype, shape, view = stacked[name]
            size = len(view) // shape[0]
            own[name.rpartition(".")[2]] = Array(
                dtype, shape[1:], view[row * size : (row + 1) * size]
            )
        text = {**metadata, RUN: run[RUN], STATE: json.dumps(run[STATE])}
        found.append((run[RUN], run[STATE], encode(own, text)))
    return number, found


PREFIX = ".pack-"
ROWS, SEGMENT = ("rows-0.safetensors", "rows-1.safetensors"), "segment.ndjson"

Event = tuple[str, Record]
"""A run and its record."""


class PackFiles:
    """The files of the packs of one worker, written in the background."""

    def __init__(self, store: Store, worker: str, writer: Writer) -> None:
        """`store` is that of the study."""
        self._store, self._writer = store / f"{PREFIX}{worker}", writer
        self._key = str(self._store)
        self._count = 0
        """Writes since the files exist."""
        self._saved_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last write is `save_seconds` ago; raise the error of a write that failed."""
        self._writer.done(self._key)
        return time.monotonic() - self._saved_at >= self._store.save_seconds

    def save(
        self,
        rows: Callable[[int], Sequence[Buffer]],
        events: Sequence[Event],
        others: Iterable[str],
    ) -> None:
        """Write the state of a pack after earlier writes, and append the events.

        `rows` makes the file of the members from the number of the write. `events` are those that
        the segment lacks. `others` are keys of the runs whose rows the last file may have and this
        one lacks: their folders are written before it.
        """
        self._writer.wait(self._key)
        keys, number = [*others], self._count

        def write() -> None:
            for key in keys:
                self._writer.wait(key)
            self._store.overwrite(ROWS[number % 2], rows(number))
            if events:
                lines = (files.record_line({"run": run, **record}) for run, record in events)
                self._store.append(SEGMENT, "\n".join(lines))

        self._writer.submit(self._key, write)
        self._count, self._saved_at = number + 1, time.monotonic()

    def delete(self) -> None:
        """Delete the files: the folders of all runs are written."""
        if self._count:
            self._count = 0
            self._writer.submit(self._key, lambda: _delete(self._store))


def unpack_all(store: Store) -> None:
    """Share out the files of all workers; this process must have the locks of the store."""
    for name in sorted(store.prefetch(SEGMENT)):
        if name.startswith(PREFIX):
            unpack(store, name.removeprefix(PREFIX))


def unpack(store: Store, worker: str) -> None:
    """Write records and checkpoints of a worker that died into the folders of its runs."""
    pack = store / f"{PREFIX}{worker}"
    pack.take_over(SEGMENT)
    events: dict[str, list[Record]] = {}
    data = pack.read(SEGMENT) or b""
    lines = files.parse_lines(data)
    for entry in lines:
        if entry is not None and isinstance(entry.get("run"), str):
            events.setdefault(entry.pop("run"), []).append(entry)
    states = _states(pack)
    if files.has_damaged_line(data, lines):
        LOG.warning("%s/%s is damaged; its runs go on from their own folders", pack, SEGMENT)
        events, states = {}, {}
    archived = set[str]().union(*(archive.run_names for archive in archives(store.path)))
    for run in all_below(store.path, sorted(events.keys() | states.keys())):
        if run in archived and (store / run).read(files.CONFIG) is None:
            continue  # it has ended
        state, rows = states.get(run, ({}, []))
        _give(
            RunFolder(store / run), [*events.get(run, ()), *state.get("records", ())], state, rows
        )
    _delete(pack)


def _states(pack: Store) -> dict[str, tuple[FieldsDict, Sequence[Buffer]]]:
    """Return the state and the rows of each run from the last file that is whole."""
    found = dict[int, FieldsDict]()
    for name in ROWS:
        if (data := pack.read(name)) is not None:
            with contextlib.suppress(ValueError, KeyError, TypeError, struct.error):
                number, runs = split(data)
                found[number] = {run: (state, rows) for run, state, rows in runs}
    return found[max(found)] if found else {}


def _give(
    folder: RunFolder, records: Sequence[Record], state: FieldsDict, rows: Sequence[Buffer]
) -> None:
    """Write what a folder lacks. A run that has left the pack has a newer state there."""
    known = {(record["event"], record["epoch"]) for record in folder.records()}
    last = max((epoch for event, epoch in known if event == "epoch"), default=0)
    if rows and state["epoch"] > last:
        folder.store.write(files.CHECKPOINT, rows, backup=files.PREVIOUS)
    new = {(record["event"], record["epoch"]): record for record in records}
    if lacking := [record for key, record in new.items() if key not in known]:
        folder.append(*lacking)


def _delete(pack: Store) -> None:
    pack.delete(*ROWS, SEGMENT)
    with contextlib.suppress(OSError):
        pack.path.rmdir()
