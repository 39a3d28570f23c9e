"""The store of a study: its runs, the suggested settings, and `study.json`.

The store is the only state of a sweep. A sweep that starts again reads from it which runs have
ended, which were interrupted and which are pending. A background thread writes in order, so that no
call waits for the store. `ReadOnlyStudyStore` reads a store while a sweep runs, or before the store
exists.

The folder of a study's store: one for each study and corpus.

    gru_ablation-captions                    a corpus without a file of its own
    gru_ablation-text-my_sentences-3f9a1c    text:data/my_sentences.txt

The last part is a hash of the path as it is written, because the path is part of the identity of
every run. So two texts with the same file name have two folders, and a text that is edited keeps
its folder. The hash is also one of `corpus.split` where it is "hash": earlier versions dealt lines
by place, and `--set corpus.split=interleave` continues their stores. Stores of still earlier
versions are called `gru_ablation-text`; such a store is continued if its last sweep had the same
path.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lmzoo.data.corpus import parse_spec
from lmzoo.errors import UserError
from lmzoo.store.local import Store
from lmzoo.store.open import open_store
from lmzoo.store.records import (
    NUMERICS,
    RECORDS,
    SCHEMA,
    SETTINGS,
    STUDY,
    WORKER_LOCK,
    RunFolder,
    json_bytes,
    parse_json,
)
from lmzoo.store.writer import Writer

DRIVER_LOCK = ".driver"
"""Lock of the sweep, and of the worker with this identity, which trains some of the runs."""
WORKER_SECONDS = 60.0
"""How long to wait for the workers of an interrupted sweep to end."""


class StudyStore:
    """The store of one study, in a folder or a bucket, locked by this process until closed."""

    def __init__(self, location: Store | Path | str) -> None:
        self.store = open_store(location)
        self.path = self.store.path
        self._check_version()
        self._open()
        self.known_runs = self.store.prefetch(RECORDS)
        """Names of the run folders that the store had when it was opened."""
        self._settings = self._read_settings()
        self._study = b""

    def run(self, run_id: str) -> RunFolder:
        """Return the folder of a run, which need not exist."""
        return RunFolder(self.store / run_id)

    def settings(self, point_id: str) -> dict[int, dict[str, Any]]:
        """Return sample number -> setting, for all settings suggested for a point."""
        return dict(self._settings.get(point_id, {}))

    def add_settings(self, point_id: str, settings: Mapping[int, Mapping[str, Any]]) -> None:
        """Append suggested settings, one line each; call it before they are trained.

        Raises:
            UserError: An earlier write failed.
        """
        new = {index: dict(setting) for index, setting in settings.items()}
        lines = [json.dumps({"point": point_id, "index": i, "setting": s}) for i, s in new.items()]
        self._submit(lambda: self.store.append(SETTINGS, "\n".join(lines)))
        self._settings.setdefault(point_id, {}).update(new)

    def prune(self, run_id: str, epoch: int) -> None:
        """Record that ASHA stopped a run, and delete its checkpoints."""
        record = {"event": "end", "epoch": epoch, "status": "pruned", "reason": f"rung {epoch}"}
        folder = self.run(run_id)
        self._submit(lambda: (folder.append(record), folder.drop_checkpoints()))

    def study(self) -> dict[str, Any]:
        """Return the content of `study.json` when a sweep starts; {} for a new study."""
        study = parse_json(self.store.read(STUDY))
        return study if isinstance(study, dict) else {}

    def write_study(self, study: Mapping[str, Any]) -> None:
        """Write `study.json`, if its content has changed.

        Raises:
            UserError: An earlier write failed.
        """
        content = json_bytes({"schema": SCHEMA, "numerics": NUMERICS, **study})
        if content != self._study:
            self._study = content
            self._submit(lambda: self._write_latest(content))

    def close(self) -> None:
        """Wait until everything is written, and release the lock.

        Raises:
            UserError: A write failed.
        """
        try:
            self._writer.close()
        finally:
            self._lock.close()

    def _open(self) -> None:
        """Lock the store, and wait until the workers of an interrupted sweep have ended."""
        self._lock = self.store.lock(DRIVER_LOCK)
        self._writer = Writer(threads=1)
        try:
            self.store.clear_locks(WORKER_LOCK.format("*"), WORKER_SECONDS)
        except BaseException:
            self._lock.close()
            raise

    def _submit(self, action: Callable[[], object]) -> None:
        self._writer.submit(self, action)

    def _write_latest(self, content: bytes) -> None:
        """Write `study.json`, unless newer content waits to be written."""
        if content is self._study:
            self.store.write(STUDY, content)

    def _read_settings(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Read the suggested settings; a damaged line is skipped, and its setting is recomputed."""
        known: dict[str, dict[int, dict[str, Any]]] = {}
        for line in (self.store.read(SETTINGS) or b"").splitlines():
            entry = parse_json(line)
            if isinstance(entry, dict) and entry.keys() >= {"point", "index", "setting"}:
                known.setdefault(entry["point"], {}).setdefault(entry["index"], entry["setting"])
        return known

    def _check_version(self) -> None:
        study = parse_json(self.store.read(STUDY))
        for name, version in {"schema": SCHEMA, "numerics": NUMERICS}.items():
            if isinstance(study, dict) and study.get(name) != version:
                raise UserError(
                    f"{self.store} has {name} version {study.get(name)!r}, but this program "
                    f"writes version {version}; choose another --storage, or continue with the "
                    "version of lmzoo that wrote it"
                )


class ReadOnlyStudyStore(StudyStore):
    """A study store that takes no lock and writes nothing; new settings are kept in memory."""

    def prune(self, run_id: str, epoch: int) -> None:
        """Do nothing: the sweep prunes the run when it starts."""

    def close(self) -> None:
        """Do nothing."""

    def _open(self) -> None:
        """Take no lock."""

    def _submit(self, action: Callable[[], object]) -> None:
        """Do nothing."""


SLUG = 24
"""Longest part of a file's name in the name of a folder."""


def store_folder(storage: Path, study: str, corpus: str | Mapping[str, Any]) -> Path:
    """Return the folder of a study's store: the one to continue if there is one, else a new one.

    Args:
        storage: Folder of the stores, or the address of a bucket.
        study: Name of the study.
        corpus: Its corpus, as `open_corpus` takes it.
    """
    spec = parse_spec(corpus)
    folder, earlier = storage / store_name(study, spec), storage / f"{study}-{spec['name']}"
    if folder == earlier or open_store(folder).read(STUDY) is not None:
        return folder
    known = _path_of(earlier) if spec.get("split") != "hash" else None
    return earlier if known == spec["path"] else folder


def describe_earlier(storage: Path, study: str, corpus: str | Mapping[str, Any]) -> str:
    """Return a line about the runs of an earlier version on the same text; "" if there are none.

    Its lines were dealt by place, so a new sweep does not continue it.
    """
    spec = dict(parse_spec(corpus))
    if spec.pop("split", "") != "hash" or open_store(storage / store_name(study, corpus)).read(
        STUDY
    ):
        return ""
    folder = store_folder(storage, study, spec)
    if open_store(folder).read(STUDY) is None:
        return ""
    return (
        f"{folder} has runs of an earlier version, which split this text by place; to continue "
        "them, add --set corpus.split=interleave"
    )


def store_name(study: str, corpus: str | Mapping[str, Any]) -> str:
    """Return the name of the folder of a study's store."""
    spec = parse_spec(corpus)
    name = f"{study}-{spec['name']}"
    path = spec.get("path")
    if not path:
        return name
    stem = Path(path).name.removesuffix(".gz").partition(".")[0]
    slug = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:SLUG].strip("_")
    dealt = f"\n{spec['split']}" if spec.get("split") == "hash" else ""
    digest = hashlib.sha256(f"{path}{dealt}".encode()).hexdigest()[:6]
    return "-".join(part for part in (name, slug, digest) if part)


def _path_of(store: Path) -> str | None:
    """Return the path of the text of the last sweep in a store; None if there is none."""
    study = parse_json(open_store(store).read(STUDY))
    asked = study.get("asked") if isinstance(study, dict) else None
    if not isinstance(asked, dict):
        return None
    fields = asked.get("fields") or {}
    return fields.get("corpus.path") or parse_spec(asked.get("corpus") or "").get("path")
