"""A run on disk: a training that saves every epoch and resumes after an interruption.

An interruption at any moment loses no record and duplicates none. The checkpoint, written first,
has the records that the file may lack, and a resumed run appends them. If the last checkpoint
cannot be read, the previous one counts, and the epochs trained again yield the same records.

With a `Writer`, files are written in the background while the next epoch is trained. A folder then
gets the epochs of a second together, a bucket those of ten seconds. An interruption loses these
epochs, which are trained again. An error of a write is raised by the next call; the run must then
be closed. A run in a pack writes into its folder when it leaves (`pack_files.py`).
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from lmzoo.base.environment import environment
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.store.records import (
    CHECKPOINT,
    ENVIRONMENT,
    PREVIOUS,
    RECORDS,
    Record,
    RunFolder,
    event_key,
)
from lmzoo.lab.store.writer import Writer


class OtherRunError(Exception):
    """The checkpoint belongs to another run, or does not follow from the records."""


class SavedRun(ABC):
    """One run in its folder. Only one process at a time may have it open."""

    training: Any
    """Has `epoch`, `record` of the last epoch, and `diverged`: its loss was NaN or infinite."""

    def __init__(
        self,
        folder: RunFolder,
        config: Fields,
        *,
        lock: bool = True,
        new: bool = False,
        writer: Writer | None = None,
    ):
        """Lock the folder, write `config` if it is new, and load the last readable checkpoint.

        A `UserError` names another process that has the run open. `lock` is False if this process
        has a lock of a store above the folder, and `new` is True if the store has no such folder,
        so that nothing is read. Without a `writer`, calls write files.
        """
        self.folder = folder
        self.identity = config.get("run", "")
        self.note = ""
        """What was wrong with the checkpoints; "" if nothing."""
        self._writer = writer
        self.key = str(folder.store)
        self._collected = list[Record]()
        """Events that are not yet given to the writer, in their order."""
        self._in_pack = 0
        """Number of these that the files of a pack have."""
        self._unsaved: Callable[[], bytes] | None = None
        """Makes the checkpoint of the last epoch, if it is not yet given to the writer."""
        self._save_seconds = 0.0
        if writer is not None:
            self._save_seconds = folder.store.save_seconds
        self._saved_at = time.monotonic()
        with ExitStack() as locks:
            if lock:
                locks.callback(folder.store.lock(".lock").close)
            self._open(config, new=new)
            self._locks = locks.pop_all()  # an error before this releases the lock

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return self.training.epoch

    @property
    def has_every_epoch(self) -> bool:
        """Whether each epoch has a record; an estimate in closed form has one."""
        return True

    @abstractmethod
    def train_epoch(self, budget: int):
        """Train one epoch of a training of `budget` epochs; `training.record` is its record."""

    @abstractmethod
    def test(self) -> Any:
        """Test the run at its current epoch, and append a `test` event."""

    @abstractmethod
    def _new_training(self, config: Fields) -> Any:
        """Return a training that begins."""

    @abstractmethod
    def _dump(self, records: list[Record]) -> Callable[[], bytes] | None:
        """Return a function, for any thread, that makes a checkpoint; None if there is none."""

    @abstractmethod
    def _load(self, data: bytes) -> list[Record]:
        """Go on from a checkpoint and return its records; raise any error if it is damaged."""

    def save_epoch(self):
        """Save the checkpoint and record of the last epoch; wait until those before are written."""
        self._wait()
        self._keep_epoch()
        if self._unsaved is None:
            self.flush()
        else:
            self._flush_if_due()

    def keep_epoch(self):
        """Keep the checkpoint and record of the last epoch until the run leaves its pack."""
        self._keep_epoch()
        self._saved_at = time.monotonic()

    def _keep_epoch(self):
        self._collect(self.training.record)
        # A copy: the checkpoint is made in another thread while further records are collected.
        self._unsaved = self._dump(self._collected.copy())

    @property
    def is_kept(self) -> bool:
        """Whether the folder lacks the last epoch."""
        return self._unsaved is not None

    def pack_events(self) -> list[Record]:
        """Return the events that the files of its pack lack; they are written next."""
        new = self._collected[self._in_pack :]
        self._in_pack = len(self._collected)
        return new

    def end(self, status: str, reason: str = ""):
        """Append the `end` event: how and why the run ended."""
        self._append_end(self.epoch, status, reason)

    def prune(self, epoch: int):
        """Record that the pruner stopped the run at an epoch, and delete the checkpoints."""
        self._unsaved = None  # its checkpoints are deleted
        self._append_end(epoch, "pruned", f"rung {epoch}")
        self._submit(self.folder.drop_checkpoints)

    def stop(self):  # noqa: B027  most have none
        """End the program that trains the run, if there is one."""

    def flush(self):
        """Write what was saved. Flush all runs before closing them one after another."""
        store = self.folder.store
        dump = self._unsaved
        records = self._collected
        self._discard()
        # The checkpoint is first: it has the records that the file may lack.
        if dump is not None:
            self._submit(lambda: store.write(CHECKPOINT, dump(), backup=PREVIOUS))
        if records:
            self._submit(lambda: self.folder.append(*records))
            self._saved_at = time.monotonic()

    def close(self):
        """Wait until the writes with the key `key` are done, and release the lock."""
        try:
            self.stop()
            self.flush()
            self._wait()
        finally:
            self._locks.close()

    def start_over(self):
        """Drop its records and checkpoints; it must then be closed."""
        self._discard()
        self._submit(self.folder.start_over)

    def _open(self, config: Fields, *, new: bool):
        if not new:
            # A process that was frozen may wake up and append to the file that it has open.
            self.folder.store.take_over(RECORDS)
        config = {**config, ENVIRONMENT: environment()}
        began: Fields = config
        self.records = list[Record]()
        """The events of the run, those that are not yet written included."""
        if not new:
            began = self.folder.config or config
            self.records = self.folder.records()
        self._began_in = began.get(ENVIRONMENT, {})
        self._submit(partial(self.folder.create, config, new=new))
        # A run that starts over trains recorded epochs again.
        self._known = set(map(event_key, self.records))
        self.training = self._new_training(config)
        if not new:
            self._resume(config)

    def _resume(self, config: Fields):
        """Load the last readable checkpoint; append a `note` event if a newer one is damaged."""
        errors = []
        records = list[Record]()
        # A death may have left the last checkpoint damaged.
        for name in (CHECKPOINT, PREVIOUS):
            data = self.folder.store.read(name)
            if data is None:
                continue
            try:
                records = self._load(data)
                self._check_epochs(records)
                break
            except Exception as error:
                reason = type(error).__name__
                if isinstance(error, OtherRunError):
                    reason = str(error)
                errors.append(reason)
                self.training = self._new_training(config)  # the state may be partly loaded
                self.folder.store.delete(name)  # or the next save would keep it as the previous one
                records = []
        if errors:
            action = "starting over"
            if self.epoch:
                action = f"going on from epoch {self.epoch}"
            self.note = f"checkpoint is damaged, {action}: {', '.join(errors)}"
            self._append({"event": "note", "epoch": self.epoch, "reason": self.note})
        for record in records:
            self._append(record)

    def _check_epochs(self, records: Sequence[Record]):
        """Raise an `OtherRunError` if the file of records has lost an epoch of the checkpoint."""
        if not self.has_every_epoch:
            return
        known = self._known.union(map(event_key, records))
        for epoch in range(1, self.epoch + 1):
            if ("epoch", epoch) not in known:
                raise OtherRunError("the records of earlier epochs are lost")

    def environment(self) -> FieldsDict:
        """Return what is recorded of the process that has trained the run."""
        return environment()

    def _append_end(self, epoch: int, status: str, reason: str):
        changed = {
            key: value
            for key, value in self.environment().items()
            if self._began_in.get(key) != value
        }
        end: Record = {"event": "end", "epoch": epoch, "status": status, "reason": reason}
        if changed:
            end[ENVIRONMENT] = changed  # the config has the rest
        self._append(end)

    def _append(self, record: Record):
        self._collect(record)
        self._flush_if_due()

    def _collect(self, record: Record):
        """Collect a record unless one of its event and epoch exists; always collect an `end` event.

        A run that starts over repeats its records. A run that failed in its last epoch may finish
        later, with a second `end` event.
        """
        key = event_key(record)
        if record["event"] == "end" or key not in self._known:
            self._known.add(key)
            self.records.append(record)
            self._collected.append(record)

    def _flush_if_due(self):
        """Write if the run has ended or the last write is `save_seconds` ago."""
        waited = time.monotonic() - self._saved_at
        has_ended = any(record["event"] == "end" for record in self._collected)
        if has_ended or waited >= self._save_seconds:
            self.flush()

    def _submit(self, action: Callable[[], object]):
        with self._discard_after_error():
            if self._writer is None:  # in this thread, at once
                action()
            else:
                self._writer.submit(self.key, action)

    def _wait(self):
        with self._discard_after_error():
            if self._writer is not None:
                self._writer.wait(self.key)

    @contextmanager
    def _discard_after_error(self) -> Iterator[None]:
        """Discard what was saved if a write failed: the store has no checkpoint of it."""
        try:
            yield
        except BaseException:
            self._discard()
            raise

    def _discard(self):
        """Forget what is not yet given to the writer."""
        self._collected = []
        self._in_pack = 0
        self._unsaved = None
