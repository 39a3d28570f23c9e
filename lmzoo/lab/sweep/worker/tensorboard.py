"""Writes a run's curves and hyper-parameters for TensorBoard.

The curves are in STUDY/tensorboard/POINT · seed SEED · RUN, or POINT · tune · RUN. TensorBoard
shows these names, and the pattern `(.*?) · ` gives the runs of a point one colour. It sorts its
charts by name, so the speed comes last.

All runs of a study have the same HParams columns: point, stage, seed and the searched fields. A
continued run writes a new event file, which replaces its earlier curves, because a process that was
killed may not have written their last epochs.

A writer of TensorBoard's has a thread and an open file. Here a run collects its points, and one
action appends those of all runs every `FLUSH_SECONDS`.
"""

# pyright: reportAttributeAccessIssue=false
# protobuf makes the classes of the events when their modules are imported.

import io
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from lmzoo.base.foreign import no_link
from lmzoo.lab.store.labels import curves_name, display_label
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import BOARD, Record
from lmzoo.lab.store.writer import LOG

FLUSH_SECONDS = 10
"""New points are written this often, in the background."""
CURVES = {
    "train_token": "train/token",
    "valid_token": "valid/token",
    "valid_sentence": "valid/sentence",
    "valid_accuracy": "valid/accuracy",
    "valid_sequence_accuracy": "valid/sequence_accuracy",
    "tokens_per_second": "worker/tokens_per_second",
}
NUMBERS = itertools.count()
"""Numbers of the event files of this process, for their names."""


class RunWriter:
    """Collects the points of one run's event file; an error stops the curves but not the run.

    In a store that is no folder, the file is written when it is complete.
    """

    def __init__(
        self,
        store: Store,
        config: Mapping[str, Any],
        epoch: int,
        records: Sequence[Record] = (),
        *,
        writes: bool = True,
    ):
        """Begin a new event file of a run after `epoch` epochs, of which it has `records`."""
        self._store = store / BOARD / curves_name(config)
        self._config = config
        # An object in a bucket cannot be appended to.
        self._appends = type(store) is Store
        self._path: Path | None = None
        """Of the file, once it exists."""
        # TensorBoard reads files in the order of their names, whatever the clocks of machines say.
        begin = int(time.time())
        for file in self._store.path.glob("events.out.tfevents.*"):
            began = int(file.name.split(".")[3])
            begin = max(begin, began + 1)
        host = socket.gethostname()
        self._name = f"events.out.tfevents.{begin:010}.{host}.{os.getpid()}.{next(NUMBERS)}"
        self._sign = 1.0
        if config["model"].get("direction") == "maximize":
            self._sign = -1.0  # records have −metric
        earlier = [record for record in records if record["epoch"] <= epoch]
        self._start: int | None = None
        if epoch and earlier:
            self._start = earlier[0]["epoch"]
        elif epoch:
            self._start = epoch + 1
        """The first of the earlier steps that this file replaces; None if there are none."""
        self._writes = writes
        self._is_new = True
        self._kept = list[bytes]()
        self._points = list[tuple[float, int, Mapping[str, float]]]()
        """Time, epoch and curves that no action has yet."""
        for record in earlier:
            self.write_epoch(record)

    def write_epoch(self, record: Record):
        """Write the numbers of an epoch record, except those that are None."""
        known = {tag: record.get(key) for key, tag in CURVES.items()}
        if known["valid/token"] is not None:
            known["valid/token"] *= self._sign
        metrics = record.get("metrics", {})
        for name, value in metrics.items():
            known[f"metrics/{name}"] = value
        self._points.append((time.time(), record["epoch"], _known(known)))

    def write_test(self, record: Record):
        """Write the losses of a test record, and the model's report."""
        curves = {
            f"report/{name.replace(' ', '_')}": value
            for name, value in record.get("report", {}).items()
        }
        for key in ("token", "sentence"):
            if key in record:
                curves[f"test/{key}"] = self._sign * record[key]
        self._points.append((time.time(), record["epoch"], curves))

    def take(self, *, last: bool = False) -> Callable[[], None] | None:
        """Return an action that writes the new points, if any; `last` completes the file."""
        points = self._points
        self._points = []
        if not self._writes or not (points or last):
            return None
        return partial(self._write, points, last=last)

    def _write(self, points: Sequence[Any], *, last: bool):
        try:
            if self._writes:
                data = io.BytesIO()
                records = RecordWriter(data)
                for event in self._events(points):
                    records.write(event.SerializeToString())
                if self._appends:
                    if self._path is None:
                        self._store.path.mkdir(parents=True, exist_ok=True)
                        self._path = self._store.path / self._name
                    # No file stays open between writes: a pack may have hundreds of runs.
                    with open(self._path, "ab", opener=no_link) as file:
                        file.write(data.getvalue())
                else:
                    self._kept.append(data.getvalue())
                    if last:
                        self._store.write(self._name, self._kept)
        # A full disk stops curves only; records continue.
        except Exception as error:
            LOG.warning("%s: TensorBoard curves stop here: %s", self._store, error)
            self._writes = False

    def _events(self, points: Sequence[Any]) -> Iterator[Event]:
        """Yield the events of the points; before the first, what a new file begins with."""
        if self._is_new:
            self._is_new = False
            begin = time.time()
            yield Event(wall_time=begin, file_version="brain.Event:2")
            if self._start is not None:
                # TensorBoard then drops the steps of earlier files from this one on.
                log = SessionLog(status=SessionLog.START)
                yield Event(wall_time=begin, step=self._start, session_log=log)
            # Once is enough: an earlier file of the run has them.
            if not any(self._store.path.glob("events.out.tfevents.*")):
                yield Event(wall_time=begin, summary=self._hparams())
        for when, epoch, curves in points:
            values = [Summary.Value(tag=tag, simple_value=number) for tag, number in curves.items()]
            summary = Summary(value=values)
            yield Event(wall_time=when, step=epoch, summary=summary)

    def _hparams(self) -> Summary:
        config = self._config
        point = config["point"]["label"]
        values = {
            "point": display_label(point, config["model"].get("cell")),
            "stage": config["stage"],
            "seed": config["seed"],
            **config["setting"],
        }
        return hparams_pb(_known(values))


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
