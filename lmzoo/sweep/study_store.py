"""The study folder: runs by identity, the settings that were suggested, the study itself.

The folder is the truth and Ray is replaceable: a sweep that starts again reads here
what is done, what was cut off, and what is still owed. Who only wants to know that takes
a `Glance`, beside a sweep that runs or of a folder that is not there yet.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmzoo.errors import UserError
from lmzoo.store.local import Lock, Store
from lmzoo.store.open import open_store
from lmzoo.store.records import RECORDS, SCHEMA, STUDY, RunFolder, json_bytes, parse_json

SETTINGS = "settings.ndjson"


class StudyStore:
    """One study's folder, here or in a bucket, held by one driver at a time."""

    def __init__(self, where: Store | Path | str) -> None:
        self.store = open_store(where)
        self.path = self.store.path
        self._refuse_other_schema()
        self._lock = self._hold()
        self.store.prefetch(RECORDS)
        self._settings = self._read_settings()
        self._study: dict[str, Any] | None = None

    def run(self, identity: str) -> RunFolder:
        """The folder of a run, whether it exists or not."""
        return RunFolder(self.store / identity)

    def settings(self, point: str) -> dict[int, dict[str, Any]]:
        """Sample number -> setting, of what was suggested for a point so far."""
        return dict(self._settings.get(point, {}))

    def add_settings(self, point: str, settings: Mapping[int, Mapping[str, Any]]) -> None:
        """Write suggestions down, a line each, before anything is trained on them."""
        new = {index: dict(setting) for index, setting in settings.items()}
        self._append_settings(
            [json.dumps({"point": point, "index": i, "setting": s}) for i, s in new.items()]
        )
        self._settings.setdefault(point, {}).update(new)

    def prune(self, identity: str, epoch: int) -> None:
        """Put down that a run was stopped early, and drop its weights."""
        record = {"event": "end", "epoch": epoch, "status": "pruned", "reason": f"rung {epoch}"}
        self.run(identity).append(record)
        self.run(identity).drop_checkpoints()

    def write_study(self, study: Mapping[str, Any]) -> None:
        """Replace the study's description, if it says anything new."""
        described = {"schema": SCHEMA, **study}
        if described != self._study:
            self.store.write(STUDY, json_bytes(described))
            self._study = described

    def close(self) -> None:
        """Let another driver hold the folder."""
        self._lock.close()

    def _hold(self) -> Lock:
        return self.store.lock(".driver")

    def _append_settings(self, lines: list[str]) -> None:
        self.store.append(SETTINGS, "\n".join(lines))

    def _read_settings(self) -> dict[str, dict[int, dict[str, Any]]]:
        """What was suggested; a damaged line is suggested again, from the same records."""
        known: dict[str, dict[int, dict[str, Any]]] = {}
        for line in (self.store.read(SETTINGS) or b"").splitlines():
            one = parse_json(line)
            if isinstance(one, dict) and one.keys() >= {"point", "index", "setting"}:
                known.setdefault(one["point"], {}).setdefault(one["index"], one["setting"])
        return known

    def _refuse_other_schema(self) -> None:
        study = parse_json(self.store.read(STUDY))
        if isinstance(study, dict) and study.get("schema") != SCHEMA:
            raise UserError(
                f"{self.store} was written by version {study.get('schema')!r} of the store, this "
                f"is version {SCHEMA}; give another --storage"
            )


class ReadOnlyStudyStore(StudyStore):
    """The folder as it lies there: nobody is kept out, nothing is written."""

    def prune(self, identity: str, epoch: int) -> None:
        """A sweep would do so when it starts."""

    def write_study(self, study: Mapping[str, Any]) -> None:
        """See `prune`."""

    def _hold(self) -> Lock:
        return contextlib.ExitStack()

    def _append_settings(self, lines: list[str]) -> None:
        """They are known as long as this is open."""
