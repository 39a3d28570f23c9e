"""The study folder: runs by identity, the settings that were suggested, the study itself.

The folder is the truth and Ray is replaceable: a sweep that starts again reads here
what is done, what was cut off, and what is still owed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.errors import UserError
from lmzoo.place import Place
from lmzoo.places import place
from lmzoo.record import RECORDS, SCHEMA, STUDY, RunFolder, json_bytes, parsed

SETTINGS = "settings.ndjson"


class Store:
    """One study's folder, here or in a bucket, held by one driver at a time."""

    def __init__(self, where: Place | Path | str) -> None:
        self.place = place(where)
        self.path = self.place.path
        self._refuse_other_schema()
        self._lock = self.place.hold(".driver")
        self.place.recall(RECORDS)
        self._settings = self._read_settings()
        self._study: dict[str, Any] | None = None

    def run(self, identity: str) -> RunFolder:
        """The folder of a run, whether it exists or not."""
        return RunFolder(self.place / identity)

    def settings(self, point: str) -> dict[int, dict[str, Any]]:
        """Sample number -> setting, of what was suggested for a point so far."""
        return dict(self._settings.get(point, {}))

    def add_settings(self, point: str, settings: Mapping[int, Mapping[str, Any]]) -> None:
        """Write suggestions down, a line each, before anything is trained on them."""
        known = self._settings.setdefault(point, {})
        lines = []
        for index, setting in settings.items():
            known[index] = dict(setting)
            lines.append(json.dumps({"point": point, "index": index, "setting": known[index]}))
        self.place.append(SETTINGS, "\n".join(lines))

    def write_study(self, study: Mapping[str, Any]) -> None:
        """Replace the study's description, if it says anything new."""
        described = {"schema": SCHEMA, **study}
        if described != self._study:
            self.place.write(STUDY, json_bytes(described))
            self._study = described

    def close(self) -> None:
        """Let another driver hold the folder."""
        self._lock.close()

    def _read_settings(self) -> dict[str, dict[int, dict[str, Any]]]:
        """What was suggested; a damaged line is suggested again, from the same records."""
        known: dict[str, dict[int, dict[str, Any]]] = {}
        for line in (self.place.read(SETTINGS) or b"").splitlines():
            one = parsed(line)
            if isinstance(one, dict) and one.keys() >= {"point", "index", "setting"}:
                known.setdefault(one["point"], {}).setdefault(one["index"], one["setting"])
        return known

    def _refuse_other_schema(self) -> None:
        study = parsed(self.place.read(STUDY))
        if isinstance(study, dict) and study.get("schema") != SCHEMA:
            raise UserError(
                f"{self.place} was written by version {study.get('schema')!r} of the store, this "
                f"is version {SCHEMA}; give another --storage"
            )
