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
from collections import defaultdict
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
METADATA = "__metadata__"
CHECKSUMS = "crc32"
NUMBER = "number"
RUNS = "runs"
STATE = "state"
RUN = "run"


class Array(NamedTuple):
    """An array as it lies in memory."""

    dtype: str
    """F32, F64, I64, ..."""
    shape: tuple[int, ...]
    data: Buffer


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[Buffer]:
    """Return the pieces of a file."""
    checksums = {}
    header: FieldsDict = {METADATA: {}}
    data = list[Buffer]()
    begin = 0
    for name, array in arrays.items():
        checksums[name] = zlib.crc32(array.data)
        end = begin + len(array.data)
        header[name] = {"dtype": array.dtype, "shape": array.shape, "data_offsets": [begin, end]}
        data.append(array.data)
        begin = end
    header[METADATA] = {**metadata, CHECKSUMS: json.dumps(checksums)}
    text = json.dumps(header).encode()
    # The format begins its arrays at a multiple of 8 bytes.
    text = text.ljust(len(text) + -len(text) % 8)
    data.insert(0, struct.pack("<Q", len(text)) + text)
    return data


def decode(data: bytes) -> tuple[dict[str, str], dict[str, Array]]:
    """Return the metadata and the arrays of a file; a ValueError if it is damaged."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    view = memoryview(data)[8 + length :]
    metadata = header.pop(METADATA)
    checksums = json.loads(metadata.pop(CHECKSUMS))
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        part = view[begin:end]
        if end > len(view) or zlib.crc32(part) != checksums[name]:
            raise ValueError(f"{name} is damaged")
        arrays[name] = Array(entry["dtype"], tuple(entry["shape"]), part)
    return metadata, arrays


def split(data: bytes) -> tuple[int, list[tuple[str, dict, list[Buffer]]]]:
    """Return the number of a pack's file; and each run, its plain state, a file of its own rows.

    The metadata `runs` has, for each run, its rows by the name of the array, and its state. In the
    file of a run, arrays have the part of their name after the last dot. See `decode`.
    """
    metadata, stacked = decode(data)
    number = int(metadata.pop(NUMBER))
    found = []
    for run in json.loads(metadata.pop(RUNS)):
        own = {}
        for name, row in run["rows"].items():
            dtype, shape, view = stacked[name]
            size = len(view) // shape[0]
            begin = row * size
            _, _, short_name = name.rpartition(".")
            own[short_name] = Array(dtype, shape[1:], view[begin : begin + size])
        text = {RUN: run[RUN], STATE: json.dumps(run[STATE])}
        found.append((run[RUN], run[STATE], encode(own, metadata | text)))
    return number, found


PREFIX = ".pack-"
ROWS = ("rows-0.safetensors", "rows-1.safetensors")
SEGMENT = "segment.ndjson"

Event = tuple[str, Record]
"""A run and its record."""


class PackFiles:
    """The files of the packs of one worker, written in the background."""

    def __init__(self, store: Store, worker: str, writer: Writer):
        """`store` is that of the study."""
        self._store = store / f"{PREFIX}{worker}"
        self._writer = writer
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
    ):
        """Write the state of a pack after earlier writes, and append the events.

        `rows` makes the file of the members from the number of the write. `events` are those that
        the segment lacks. `others` are keys of the runs whose rows the last file may have and this
        one lacks: their folders are written before it.
        """
        self._writer.wait(self._key)
        # As they are now: the write may begin later.
        keys = list(others)
        number = self._count

        def write():
            for key in keys:
                self._writer.wait(key)
            # The state has the records that the segment may lack, so it is first.
            self._store.overwrite(ROWS[number % 2], rows(number))
            lines = [files.record_line({"run": run} | record) for run, record in events]
            if lines:
                self._store.append(SEGMENT, "\n".join(lines))

        self._writer.submit(self._key, write)
        self._count += 1
        self._saved_at = time.monotonic()

    def delete(self):
        """Delete the files: the folders of all runs are written."""
        if self._count:  # else there are no files
            self._count = 0
            self._writer.submit(self._key, lambda: _delete(self._store))


def unpack_all(store: Store):
    """Share out the files of all workers; this process must have the locks of the store."""
    for name in sorted(store.prefetch(SEGMENT)):
        if name.startswith(PREFIX):
            unpack(store, name.removeprefix(PREFIX))


def unpack(store: Store, worker: str):
    """Write records and checkpoints of a worker that died into the folders of its runs."""
    pack = store / f"{PREFIX}{worker}"
    pack.take_over(SEGMENT)  # a worker that was stopped may go on
    events = defaultdict[str, list[Record]](list)
    data = pack.read(SEGMENT) or b""
    lines = files.parse_lines(data)
    for entry in lines:
        if entry is not None and isinstance(entry.get("run"), str):
            events[entry.pop("run")].append(entry)
    states = _states(pack)
    if files.has_damaged_line(data, lines):
        LOG.warning("%s/%s is damaged; its runs go on from their own folders", pack, SEGMENT)
        events.clear()
        states = {}
    archived = set[str]()
    for archive in archives(store.path):
        archived.update(archive.run_names)
    # A name in a segment may be a stranger's, and lead out of the store.
    for run in all_below(store.path, sorted(events.keys() | states.keys())):
        if run in archived and (store / run).read(files.CONFIG) is None:
            continue  # it has ended
        state, rows = states.get(run, ({}, []))
        # The last state has records that the segment may lack.
        records = events[run] + state.get("records", [])
        _give(RunFolder(store / run), records, state, rows)
    _delete(pack)


def _states(pack: Store) -> dict[str, tuple[FieldsDict, Sequence[Buffer]]]:
    """Return the state and the rows of each run from the last file that is whole."""
    found = dict[int, FieldsDict]()
    for name in ROWS:
        data = pack.read(name) or b""
        # A death in a write leaves a torn file.
        with contextlib.suppress(ValueError, KeyError, TypeError, struct.error):
            number, runs = split(data)
            found[number] = {run: (state, rows) for run, state, rows in runs}
    return found.get(max(found, default=0), {})


def _give(folder: RunFolder, records: Sequence[Record], state: FieldsDict, rows: Sequence[Buffer]):
    """Write what a folder lacks. A run that has left the pack has a newer state there."""
    known = folder.records()
    last = files.last_epoch(known)
    if rows and state["epoch"] > last:
        folder.store.write(files.CHECKPOINT, rows, backup=files.PREVIOUS)
    # The segment keeps what the folder got when a run left the pack.
    keys = set(map(files.event_key, known))
    lacking = [
        record for record in files.last_records(records) if files.event_key(record) not in keys
    ]
    if lacking:
        folder.append(*lacking)


def _delete(pack: Store):
    for name in ROWS:
        pack.delete(name)
    pack.delete(SEGMENT)
    with contextlib.suppress(OSError):
        pack.path.rmdir()
