"""The study folder: runs by identity, the settings that were suggested, the study itself.

The folder is the truth and Ray is replaceable: a sweep that starts again reads here
what is done, what was cut off, and what is still owed.
"""

import fcntl
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lmzoo.errors import UserError
from lmzoo.record import SCHEMA, STUDY, RunFolder, read_json, write_json

SETTINGS = "settings.ndjson"


class Store:
    """One study's folder, held by one driver at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._refuse_other_schema()
        self._lock = self._hold()
        self._settings = self._read_settings()

    def run(self, identity: str) -> RunFolder:
        """The folder of a run, whether it exists or not."""
        return RunFolder(self.path / identity)

    def settings(self, point: str) -> dict[int, dict[str, Any]]:
        """Sample number -> setting, of what was suggested for a point so far."""
        return dict(self._settings.get(point, {}))

    def add_setting(self, point: str, index: int, setting: Mapping[str, Any]) -> None:
        """Write a suggestion down before anything is trained on it."""
        line = json.dumps({"point": point, "index": index, "setting": dict(setting)})
        with (self.path / SETTINGS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._settings.setdefault(point, {})[index] = dict(setting)

    def write_study(self, study: Mapping[str, Any]) -> None:
        """Replace the study's description."""
        write_json(self.path / STUDY, {"schema": SCHEMA, **study})

    def close(self) -> None:
        """Let another driver hold the folder."""
        self._lock.close()

    def _read_settings(self) -> dict[str, dict[int, dict[str, Any]]]:
        path = self.path / SETTINGS
        known: dict[str, dict[int, dict[str, Any]]] = {}
        if not path.exists():
            return known
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # a torn last line
            with path.open("r+b") as file:
                file.truncate(len(whole))
        for line in whole.decode("utf-8").splitlines():
            one = json.loads(line)
            known.setdefault(one["point"], {}).setdefault(one["index"], one["setting"])
        return known

    def _refuse_other_schema(self) -> None:
        study = read_json(self.path / STUDY)
        if study is not None and study.get("schema") != SCHEMA:
            raise UserError(
                f"{self.path} was written by version {study.get('schema')!r} of the store, this is "
                f"version {SCHEMA}; give another --storage"
            )

    def _hold(self) -> IO[str]:
        file = (self.path / ".driver").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise UserError(f"{self.path} is in use by {holder}; wait for it to end") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        return file
