"""Write the verdicts of a ranking for TensorBoard: one run `POINT · verdict` for each point.

Its HParams are the point, its verdict as the stage, the number of seeds and the chosen setting; its
metrics are the loss, the difference to the reference with its interval, and p.
"""

import json
from pathlib import Path
from typing import Any

import polars as pl
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo  # type: ignore[attr-defined]
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from lmzoo.lab.labels import file_name
from lmzoo.lab.store.records import BOARD, VERDICT_METRICS


def write_verdicts(study: Path, frame: pl.DataFrame) -> None:
    """Replace the verdicts in STUDY/tensorboard by those of a ranking."""
    for row in frame.to_dicts():
        folder = study / BOARD / f"{file_name(row['label'])} · verdict"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        writer = EventFileWriter(str(folder))
        for summary in (_hparams(row), _metrics(row)):
            writer.add_event(Event(step=row["epoch"], summary=summary))
        writer.close()


def _hparams(row: dict[str, Any]) -> Summary:
    """Return the summary that makes a run a row of the HParams table."""
    verdict = "reference" if row["reference"] else row["verdict"] or "no verdict"
    values = {"point": row["label"], "stage": f"verdict: {verdict}"}
    info = SessionStartInfo()
    for name, value in {**values, **json.loads(row["setting"] or "{}")}.items():
        if isinstance(value, bool):
            info.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = str(value)
    data = HParamsPluginData(session_start_info=info)
    return Summary(
        value=[
            Summary.Value(
                tag=metadata.SESSION_START_INFO_TAG,
                metadata=metadata.create_summary_metadata(data),
                tensor=metadata.NULL_TENSOR,
            )
        ]
    )


def _metrics(row: dict[str, Any]) -> Summary:
    known = {tag: row[name] for name, tag in VERDICT_METRICS.items() if row[name] is not None}
    return Summary(value=[Summary.Value(tag=tag, simple_value=x) for tag, x in known.items()])
