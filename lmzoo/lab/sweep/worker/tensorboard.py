"""Writes a run's curves and hyper-parameters for TensorBoard.

The curves are in STUDY/tensorboard/POINT · seed SEED · RUN, or POINT · tune · RUN. TensorBoard
shows these names, and the pattern `(.*?) · ` gives the runs of a point one colour. The seeds of a
count model, whose losses are equal, are one run POINT. TensorBoard sorts its charts by name, so the
speed comes last.

All runs of a study have the same HParams columns: point, stage, seed and the searched fields.
Strings stay strings and numbers stay numbers, so that the table can be sorted and filtered. A
continued run writes a new event file, which replaces its earlier curves, because a process that was
killed may not have written their last epochs.
"""

# pyright: reportAttributeAccessIssue=false
# protobuf makes the classes of the events when their modules are imported.

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from lmzoo.lab.store.labels import curves_name, display_label
from lmzoo.lab.store.records import BOARD, Record
from lmzoo.lab.store.writer import LOG

FLUSH_SECONDS = 10
"""A thread of the event file writes the new numbers this often; training does not wait for it."""
METRICS = ("valid/token", "test/token")
CURVES = {
    "train_token": "train/token",
    "valid_token": "valid/token",
    "valid_sentence": "valid/sentence",
    "valid_accuracy": "valid/accuracy",
    "valid_sequence_accuracy": "valid/sequence_accuracy",
    "tokens_per_second": "worker/tokens_per_second",
}


class RunWriter:
    """Writes one run's event file; a disk error stops the curves but not the run."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        epoch: int,
        records: Sequence[Record] = (),
        *,
        once: bool = False,
        writes: bool = True,
    ) -> None:
        """Open a new event file.

        Args:
            folder: The run folder. The curves are beside it, in a folder with the run's name for
                people; curves that an earlier version wrote into the run folder stay there.
            config: The config of the run.
            epoch: Number of finished epochs; 0 for a new run.
            records: The epoch records of a run that is continued.
            once: Whether all confirm runs of the point have the same losses; the last one is shown.
            writes: False: no file.
        """
        self._folder = folder.parent / BOARD / curves_name(config, once=once)
        self._writer = None
        maximized = config["model"].get("direction") == "maximize"  # records then have −metric
        self._sign = -1.0 if maximized else 1.0
        if not writes:
            return
        earlier = [record for record in records if record["epoch"] <= epoch]
        purged = earlier[0]["epoch"] if earlier else epoch + 1
        with self._catch_disk_error():
            is_new = not any(self._folder.glob("events.out.tfevents.*"))
            self._writer = EventFileWriter(str(self._folder), flush_secs=FLUSH_SECONDS)
            if epoch or once:
                self._add(step=purged, session_log=SessionLog(status=SessionLog.START))
            if is_new:
                self._write_hparams(config)
        for record in earlier:
            self.write_epoch(record)

    def write_epoch(self, record: Record) -> None:
        """Write the numbers of an epoch record, except those that are None."""
        known = {tag: record.get(key) for key, tag in CURVES.items()}
        if known["valid/token"] is not None:
            known["valid/token"] *= self._sign
        known |= {f"metrics/{name}": x for name, x in record.get("metrics", {}).items()}
        curves = {tag: value for tag, value in known.items() if value is not None}
        self._write(curves, record["epoch"])

    def write_test(self, record: Record) -> None:
        """Write the losses of a test record, and the model's report."""
        report = record.get("report", {}).items()
        curves = {f"report/{name.replace(' ', '_')}": x for name, x in report}
        keys = [key for key in ("token", "sentence") if key in record]
        known = {f"test/{key}": self._sign * record[key] for key in keys}
        self._write({**known, **curves}, record["epoch"])

    def close(self) -> None:
        """Flush and close the event file."""
        with self._catch_disk_error():
            if self._writer is not None:
                self._writer.close()

    def _write(self, curves: Mapping[str, float], epoch: int) -> None:
        with self._catch_disk_error():
            if self._writer is not None:
                for tag, value in curves.items():
                    scalar = Summary.Value(tag=tag, simple_value=value)
                    self._add(step=epoch, summary=Summary(value=[scalar]))

    def _add(self, **content: Any) -> None:
        assert self._writer is not None
        self._writer.add_event(Event(wall_time=time.time(), **content))

    @contextlib.contextmanager
    def _catch_disk_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            LOG.warning("%s: TensorBoard curves stop here: %s", self._folder, error)
            self._writer = None

    def _write_hparams(self, config: Mapping[str, Any]) -> None:
        values = {
            "point": display_label(config["point"]["label"], config["model"].get("cell")),
            "stage": config["stage"],
            "seed": config["seed"],
            **config["setting"],
        }
        for tag, content in _hparams(values):
            data = plugin_data_pb2.HParamsPluginData(
                version=metadata.PLUGIN_DATA_VERSION, **content
            )
            plugin = SummaryMetadata.PluginData(
                plugin_name=metadata.PLUGIN_NAME, content=data.SerializeToString()
            )
            value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))
            self._add(summary=Summary(value=[value]))


def _hparams(values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the HParams page reads: the columns, the values of a run, and its end."""
    known = {name: value for name, value in values.items() if value is not None}
    start, columns = plugin_data_pb2.SessionStartInfo(), []
    for name, value in known.items():
        text = isinstance(value, str)
        setattr(start.hparams[name], "string_value" if text else "number_value", value)
        kind = api_pb2.DATA_TYPE_STRING if text else api_pb2.DATA_TYPE_FLOAT64
        columns.append(api_pb2.HParamInfo(name=name, type=kind))
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in METRICS]
    experiment = api_pb2.Experiment(hparam_infos=columns, metric_infos=metrics)
    yield metadata.EXPERIMENT_TAG, {"experiment": experiment}
    yield metadata.SESSION_START_INFO_TAG, {"session_start_info": start}
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS)
    yield metadata.SESSION_END_INFO_TAG, {"session_end_info": end}
