"""The store of a study: its runs, the suggested settings, and `study.json`.

The store is the only state of a sweep. A sweep that starts again reads from it which runs have
ended, which were interrupted and which are pending. A background thread writes in order, so that no
call waits for the store. `ReadOnlyStudyStore` reads a store while a sweep runs, or before the store
exists. `study_json.py` makes the content of `study.json`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lmzoo.base.environment import differences, present
from lmzoo.base.errors import UserError
from lmzoo.lab.store import records as files
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.archive import RUNS, archive_runs, archived_runs, restore_run
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.pack_files import unpack_all
from lmzoo.lab.store.records import Record, RunFolder
from lmzoo.lab.store.writer import Writer, retry
from lmzoo.lab.study.study import Setting, Settings
from lmzoo.lab.study.trainable import Config

LOG = logging.getLogger("lmzoo.lab.sweep")
WORKER_SECONDS = 60.0
"""How long to wait for the workers of an interrupted sweep to end."""


class StudyStore:
    """The store of one study, in a folder or a bucket, locked by this process until closed."""

    def __init__(
        self,
        location: Store | Path | str,
        *,
        archives: bool = False,
        curves: bool = True,
        again: bool = False,
    ):
        """Open and lock a store; a `UserError` if a process has it, or if its version is another.

        With `archives`, the files of ended runs move into an archive
        (`lmzoo/lab/store/archive.py`); a bucket has none. With `curves`, workers write curves for
        TensorBoard. With `again`, runs that ended in another environment have no records.
        """
        self.store = open_store(location)
        self._again = again
        self.changed: dict[str, Mapping[str, tuple[str, str]]] = {}
        """Run that has ended -> what has changed since: its value then and now."""
        self._since: dict[str, Mapping[str, tuple[str, str]]] = {}
        """Environment in which runs have ended -> what has changed since."""
        self.path = self.store.path
        self.curves = curves
        # A bucket has no folders whose number matters.
        self._archives = archives and type(self.store) is Store
        # Before the lock: another version must not touch the files.
        self._check_version()
        self._open()
        self._folders = self.store.prefetch(files.RECORDS)
        # Read once: an archive is one file.
        self._archived = {run: texts for run, *texts in archived_runs(self.path)}
        """Run -> its config and its records, until they are read."""
        self._only_archived = self._archived.keys() - self._folders
        """Runs that have ended and that have no folder."""
        self._ended: dict[str, None] = {}
        """Runs that wait for the archive."""
        self.known_runs = self._folders | self._archived.keys()
        """Names of the runs that the store had when it was opened."""
        self._settings = self._read_settings()
        self._study = b""

    def run(self, run_id: str) -> RunFolder:
        """Return the folder of a run, which need not exist."""
        return RunFolder(self.store / run_id)

    def records(self, run_id: str, config: Callable[[], Config]) -> list[Record]:
        """Return the events of a run that the store had when it was opened.

        `config` makes the config of the run, which is written again if it is damaged.
        """
        folder = self.run(run_id)
        archived = self._archived.pop(run_id, None)
        if type(self.store) is not Store:  # S3 verifies its objects; to read each takes long
            stored = None
            if self._again:
                stored = folder.config
            return self._of_now(folder, stored, folder.records(), config)
        text = None
        if run_id in self._folders:
            text = folder.store.read(files.CONFIG)
        # A folder is newer than the archive: it was written because the run was pending.
        if text is None and archived:
            text, data = archived
        else:
            data = folder.store.read(files.RECORDS) or b""
        stored = files.parse_json(text)
        if not files.is_config(stored, run_id):
            LOG.warning("%s/%s is damaged, and is written again", folder.store, files.CONFIG)
            self._repair(folder, lambda: _write_config(folder, config()))
        events = files.parse_lines(data, run_id)
        if files.has_damaged_line(data, events):
            LOG.warning("%s/%s is damaged; the run is trained again", folder.store, files.RECORDS)
            self._repair(folder, folder.start_over)
            return []
        return self._of_now(folder, stored, files.last_records(events), config)

    def _of_now(
        self,
        folder: RunFolder,
        stored: Config | None,
        records: list[Record],
        config: Callable[[], Config],
    ) -> list[Record]:
        """Return the records of a run, none if it has ended elsewhere and is trained again."""
        changed = self._changes(stored or {}, records)
        # With --again, runs of one comparison share an environment.
        if changed and self._again:
            self._repair(folder, lambda: folder.start_over(config()))
            return []
        if changed:
            self.changed[folder.path.name] = changed
        return records

    def _changes(self, config: Config, records: Sequence[Record]) -> Mapping[str, tuple[str, str]]:
        """Return what has changed since a run ended."""
        ends = [record for record in records if record["event"] == "end"]
        if not ends:
            return {}
        begun = config.get(files.ENVIRONMENT, {})
        # The end may be of another machine than the beginning.
        then = begun | ends[-1].get(files.ENVIRONMENT, {})
        program = files.PROGRAM in config or "packages" in then
        # Thousands of runs have ended in one of a few environments.
        known = f"{program} {then}"
        if known not in self._since:
            self._since[known] = differences(then, present(then), program=program)
        return self._since[known]

    def _repair(self, folder: RunFolder, action: Callable[[], object]):
        """Do something in the folder of a run, which an archived one gets first."""
        self.continue_run(folder.path.name)
        action()

    def continue_run(self, run_id: str):
        """Write the folder of an archived run again, because it is pending."""
        self._only_archived.discard(run_id)
        restore_run(self.path, run_id)

    def end_run(self, run_id: str):
        """Archive a run that has ended, together with others or when the store is closed."""
        if not self._archives or run_id in self._only_archived:
            return
        self._ended[run_id] = None
        if len(self._ended) >= RUNS:
            self._archive()

    def _archive(self):
        runs = list(self._ended)
        self._ended = {}
        archive = partial(archive_runs, self.path, runs)
        self._submit(lambda: retry(archive, str(self.store)))

    def settings(self, point_id: str) -> dict[int, Setting]:
        """Return sample number -> setting, for all settings suggested for a point."""
        return dict(self._settings.get(point_id, {}))

    def add_settings(self, point_id: str, settings: Mapping[int, Settings]):
        """Append settings before they are trained; a `UserError` if an earlier write failed."""
        # Known at once; the thread writes them before the runs can report.
        known = self._settings.setdefault(point_id, {})
        lines = []
        for index, setting in settings.items():
            known[index] = dict(setting)
            entry = {"point": point_id, "index": index, "setting": known[index]}
            lines.append(files.record_line(entry))
        text = "\n".join(lines)
        self._submit(lambda: self.store.append(files.SETTINGS, text))

    def prune(self, run_id: str, epoch: int):
        """Record that ASHA stopped a run, and delete its checkpoints."""
        record = {
            "event": "end",
            "epoch": epoch,
            "status": "pruned",
            "reason": f"rung {epoch}",
        }
        folder = self.run(run_id)
        # In this order: without its end, a run needs its checkpoints.
        self._submit(lambda: (folder.append(record), folder.drop_checkpoints()))
        self.end_run(run_id)

    def study(self) -> dict[str, Any]:
        """Return the content of `study.json` when a sweep starts; {} for a new study."""
        study = files.parse_json(self.store.read(files.STUDY))
        if isinstance(study, dict):
            return study
        return {}

    def other_question(self, question: str) -> str:
        """Return what is said if the store answers another question; else ""."""
        before = self.study().get("question", question)
        if before == question:
            return ""
        return (
            f"{self.store} answers another question, {before!r}, whose ranking is replaced; its "
            "sweep makes it again; to keep both, choose another --out"
        )

    def write_study(self, study: Config):
        """Write `study.json`, if it has changed; a `UserError` if an earlier write failed."""
        # The version comes from here, so that no caller forgets it.
        versions = {"schema": files.SCHEMA, "numerics": files.NUMERICS}
        content = files.json_bytes(versions | dict(study))
        if content == self._study:
            return
        self._study = content
        self._submit(lambda: self._write_latest(content))

    def check_lock(self):
        """Raise a `UserError` if this process lost the lock while it was stopped."""
        self._lock.check()

    def close(self):
        """Write everything, and release the lock; a `UserError` if a write failed."""
        try:
            # The last ones, which are fewer than `RUNS`.
            if self._ended:
                self._archive()
            self._writer.close()
        finally:
            self._lock.close()

    def _open(self):
        """Lock the store, and wait until the workers of an interrupted sweep have ended."""
        self._lock = self.store.lock(files.DRIVER_LOCK)
        self._writer = Writer(threads=1)
        try:
            # A worker of an interrupted sweep may still write.
            self.store.clear_locks(files.WORKER_LOCK.format("*"), WORKER_SECONDS)
            self.store.take_over(files.SETTINGS)
            unpack_all(self.store)
        except BaseException:
            self._lock.close()
            raise

    def _submit(self, action: Callable[[], object]):
        self._writer.submit(self, action)

    def _write_latest(self, content: bytes):
        """Write `study.json`, unless newer content waits to be written."""
        if content is self._study:
            self.store.write(files.STUDY, content)

    def _read_settings(self) -> dict[str, dict[int, Setting]]:
        """Read the suggested settings; a damaged line is deleted, and its setting is recomputed."""
        known: dict[str, dict[int, Setting]] = {}
        whole = list[bytes]()
        damaged = 0
        content = self.store.read(files.SETTINGS) or b""
        lines = content.split(b"\n")
        # What follows the last line end is a line that was being written.
        for line in lines[:-1]:
            entry = files.parse_json(line)
            if files.is_setting(entry):
                # The first of two entries counts: its run may be trained already.
                of_point = known.setdefault(entry["point"], {})
                of_point.setdefault(entry["index"], entry["setting"])
                whole.append(line + b"\n")
            elif line:
                damaged += 1
        if damaged:
            text = "%s/%s has damaged lines: %d settings are computed again"
            LOG.warning(text, self.store, files.SETTINGS, damaged)
            self._submit(lambda: self.store.write(files.SETTINGS, whole))
        return known

    def _check_version(self):
        data = self.store.read(files.STUDY)
        study = files.parse_json(data)
        if not isinstance(study, dict):
            if data:
                LOG.warning("%s/%s is damaged, and is written again", self.store, files.STUDY)
            return
        known = {"schema": files.READABLE, "numerics": (files.NUMERICS,)}
        for name, versions in known.items():
            version = study.get(name)
            if version not in versions:
                raise UserError(
                    f"{self.store} has {name} version {version!r}, but this program "
                    f"writes version {versions[-1]}; choose another --out, or continue with the "
                    "version of lmzoo that wrote it"
                )


class ReadOnlyStudyStore(StudyStore):
    """A study store that takes no lock and writes nothing; new settings are kept in memory."""

    def _nothing(self, *_: Any, **__: Any):
        """Do nothing: a sweep prunes and repairs the runs when it starts."""

    prune = continue_run = _repair = close = _open = _submit = _nothing


def _write_config(folder: RunFolder, config: Config):
    folder.store.write(files.CONFIG, files.json_bytes(config))
