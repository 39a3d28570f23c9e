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
none of its runs is open. Standard library only.
"""

import contextlib
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lmzoo.lab.store import records as files
from lmzoo.lab.store.archive import archives
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import Record, RunFolder
from lmzoo.lab.store.tensors import Buffer, split
from lmzoo.lab.store.writer import LOG, Writer

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
    for run in sorted(events.keys() | states.keys()):
        if run in archived and (store / run).read(files.CONFIG) is None:
            continue  # it has ended
        state, rows = states.get(run, ({}, []))
        _give(
            RunFolder(store / run), [*events.get(run, ()), *state.get("records", ())], state, rows
        )
    _delete(pack)


def _states(pack: Store) -> dict[str, tuple[dict[str, Any], Sequence[Buffer]]]:
    """Return the state and the rows of each run from the last file that is whole."""
    found = dict[int, dict[str, Any]]()
    for name in ROWS:
        if (data := pack.read(name)) is not None:
            with contextlib.suppress(ValueError, KeyError, TypeError, struct.error):
                number, runs = split(data)
                found[number] = {run: (state, rows) for run, state, rows in runs}
    return found[max(found)] if found else {}


def _give(
    folder: RunFolder, records: Sequence[Record], state: dict[str, Any], rows: Sequence[Buffer]
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
