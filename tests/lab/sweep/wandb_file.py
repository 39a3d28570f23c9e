"""Reads a `.wandb` file, which W&B writes in offline mode; W&B's own reader is not in Python."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32768


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a file in the format of LevelDB's log."""
    data = path.read_bytes()
    assert data.startswith(HEADER)
    at, message = len(HEADER), b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:  # the rest of a block is too small for a header
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        message += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a full message, or the last part of one
            yield message
            message = b""


def read(path: Path) -> tuple[dict, list[dict]]:
    """Return the run (id, name, project, group, config) and the rows of its history."""
    from wandb.proto import wandb_internal_pb2

    run, rows = {}, []
    for message in messages(path):
        record = wandb_internal_pb2.Record.FromString(message)
        if record.WhichOneof("record_type") == "run" and not run:
            config = {one.key: json.loads(one.value_json) for one in record.run.config.update}
            run = {
                "id": record.run.run_id,
                "name": record.run.display_name,
                "project": record.run.project,
                "group": record.run.run_group,
                "config": config,
            }
        rows.append(
            {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
        )
    return run, [row for row in rows if row]
