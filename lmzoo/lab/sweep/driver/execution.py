"""One execution of a study: plans it, trains its pending runs on Ray, prints the ranking.

The first line of output appears before torch and Ray are imported, which takes seconds.
"""

import functools
import importlib
import os
import subprocess
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmzoo.base.command_line import exit_with_error
from lmzoo.base.errors import UserError
from lmzoo.base.memory import gc_disabled
from lmzoo.base.stops import STOPS
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.store.address import S3_SCHEME
from lmzoo.lab.store.local import Store, delete_temporary
from lmzoo.lab.store.records import TRACEBACK, WORKER_LOCK, listed
from lmzoo.lab.store.user_code import save as save_code
from lmzoo.lab.study.output import OUTPUT
from lmzoo.lab.study.study import Study
from lmzoo.lab.sweep.screen import progress_console

if TYPE_CHECKING:
    from lmzoo.lab.study.planned_run import PlannedRun
    from lmzoo.lab.study.planner import Planner
    from lmzoo.lab.study.study_store import StudyStore
    from lmzoo.lab.sweep.fleet.packing import Packer

LOCK_SECONDS = 3.0
"""How long the end of an interrupted sweep waits for its workers to end."""
GPU_BYTES = 16 * 2**30
"""Assumed memory of a GPU until the first worker reports it."""
ENGINES = {"packs": "driver.placement", "tune": "tune_trials"}
"""Value of `--engine` -> the module that trains the pending runs."""
DEATH = (
    "the sweep was killed, or Ray was ended on this machine (memory, `ray stop`); "
    "run the same command again to continue"
)


@dataclass
class Sweep:
    """One execution of a study; `folder` is its store, and `failed` says whether runs failed."""

    study: Study
    resources: Resources
    fuse: str = "auto"
    curves: bool = True
    as_json: bool = False
    quiet: bool = False
    is_command: bool = True
    """Whether errors and the ranking are printed."""
    engine: str = "packs"
    again: bool = False

    def __post_init__(self):
        if self.engine not in ENGINES:
            raise UserError(f"--engine {self.engine!r} is unknown; choose {' or '.join(ENGINES)}")
        self.folder = Path()
        self.failed = False
        self._ranking: subprocess.Popen[bytes] | None = None
        self._last_words = ["interrupted; run the same command again to continue"]
        self.left_out: Mapping[str, str] = {}
        """Nodes that got no work, and why."""
        self.stderr = progress_console()
        self._spinner = self.stderr.status("")
        """Moves on a terminal until the table of points is there: loading takes seconds."""

    def run(
        self,
        data_dir: Path | None,
        storage: Path,
        labels: str,
        settings: dict[str, Any],
        *,
        dry_run: bool,
    ) -> int:
        """Plan the study, train its pending runs and print the ranking; return the exit code.

        `settings` are the fields of all points from the command line.
        """
        with self._ended_by_signals(), ExitStack() as ending:
            for word in sys.argv:
                if word.encode(errors="replace").decode() != word:
                    raise UserError(f"{word!r} is not UTF-8, which Ray needs; take another name")
            self.study.check()
            self._say_start()
            if not dry_run:
                self._begin(storage, ending)  # meanwhile torch and the corpus are loaded
            ending.push(self._say_error)
            ending.callback(self._spinner.stop)
            if not self.quiet:
                self._spinner.start()
            with gc_disabled():
                from lmzoo.lab.study.planner import Planner
                from lmzoo.lab.study.study_store import ReadOnlyStudyStore, StudyStore
                from lmzoo.lab.study.trainable import check_selection, open_door
                from lmzoo.lab.sweep.fleet.packing import Packer, parse_fuse
                from lmzoo.lab.sweep.screen.dry_run import print_dry_run

                door = open_door()

            size = parse_fuse(self.fuse)
            door.check_settings(self.study, settings)
            data = door.open_data(self.study, data_dir)
            fields = data.fields
            corpus = data.corpus
            if not self.quiet:
                for line in data.lines:
                    self.stderr.print(line, markup=False)
            needed = door.select_labels(self.study, corpus, labels)
            points = door.resolve(self.study, corpus, fields, needed)
            check_selection(self.study, points, needed)
            for line in door.check_points(points):
                self.stderr.print(f"WARNING: {line}", markup=False)
            fingerprint = ""
            if corpus:
                fingerprint = corpus.fingerprint
            self.folder = door.store_folder(storage, self.study.name, fields, fingerprint)
            kind: Any = functools.partial(StudyStore, archives=True, curves=self.curves)
            if dry_run:  # it writes nothing
                kind = ReadOnlyStudyStore
            with closing(kind(self.folder, again=self.again)) as store:
                said = store.other_question(self.study.question)
                if said:
                    self.stderr.print(f"WARNING: {said}", markup=False)
                with gc_disabled():  # a large store makes millions of objects that stay
                    planner = Planner(self.study, points, store, needed)
                self._say_changes(planner)
                if dry_run:
                    self._spinner.stop()
                    print_dry_run(planner, data.source, self.resources, as_json=self.as_json)
                    return 0
                save_code(planner.code, store.store)
                return self._train(planner, Packer(corpus, size))
        return 130

    def _say_changes(self, planner: "Planner"):
        """Say which runs have ended in another environment, and what trains them again."""
        groups = defaultdict[str, list[str]](list)
        for run_id, changed in planner.store.changed.items():
            words = [f"{name} {old} (now {new})" for name, (old, new) in changed.items()]
            run = planner.find(run_id)
            label = run_id
            if run:
                label = run.display_label
            groups[", ".join(words)].append(label)
        for words, labels in groups.items():
            where = listed(dict.fromkeys(labels))
            what = f"{len(labels)} finished runs were trained with {words}: {where}"
            self.stderr.print(f"{what}; --again trains them again", markup=False)

    def _say_start(self):
        if self.quiet:
            return
        self.stderr.print(f"{self.study.name}: {self.study.question}", markup=False)
        searched = self.study.search_words
        if searched:
            self.stderr.print(f"search space: {searched}", markup=False)
        self.stderr.print("loading torch and the corpus, which takes seconds")

    def _say_error(self, kind: Any, error: BaseException | None, traceback: Any):
        """Print the user's error before Ray ends, which takes seconds."""
        if self.is_command and isinstance(error, UserError) and not STOPS.requested.is_set():
            exit_with_error(str(error))

    def _begin(self, storage: Path, ending: ExitStack):
        """Start Ray, unless the store of an earlier sweep may need no worker."""
        is_bucket = S3_SCHEME.match(str(storage))
        if is_bucket or any(storage.glob(f"{escape(self.study.name)}*")):
            return
        if "torch" not in sys.modules:
            from lmzoo.lab.cluster import connection

            ending.callback(connection.abandon)
            connection.begin()

    @contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """Handle signals; one of them ends the block with a line that says how to continue."""
        with STOPS.installed():
            try:
                yield
            except (KeyboardInterrupt, Exception):  # what waits for Ray fails when Ray is ended
                if not STOPS.requested.is_set():
                    raise
                self._say_interrupted()

    def _say_interrupted(self):
        with suppress(OSError, IndexError):  # the terminal may have gone
            self._spinner.stop()
            self.stderr.print(self._last_words.pop())

    def _train(self, planner: "Planner", packer: "Packer") -> int:
        with ExitStack() as ending:
            with ExitStack() as ray:
                ray.callback(_clear_worker_locks, planner.store.store)
                if planner.done and not self.quiet:
                    self.stderr.print(f"nothing left to do in {planner.store.store}", markup=False)
                if not planner.done and not self._train_pending(planner, packer, ray):
                    raise UserError("the workers have ended before the runs; run the command again")
                self._spinner.stop()
                diverged = self._report_failures(planner)
                # Ray takes more than a second to shut down; the ranking is computed meanwhile.
                if self.is_command and not self.as_json:
                    self._ranking = _start_ranking(planner.store.store.address)
                    ending.callback(self._ranking.terminate)  # does nothing if it has ended
            code = 0
            if self._ranking:
                code = self._ranking.wait()
        if self.failed or diverged:
            return 1
        return code

    def _report_failures(self, planner: "Planner") -> bool:
        """Print what failed, before the ranking; return whether all runs of a point diverged."""
        failed = defaultdict[tuple[str, str], "list[PlannedRun]"](list)
        for run in planner.failed_runs:
            failed[run.display_label, run.reason].append(run)
        for (label, reason), runs in failed.items():
            text = f"{runs[0].stage} {runs[0].id}: {reason}"
            if len(runs) > 1:
                text = f"{len(runs)} runs: {reason}"
            nodes = set[str]()
            for run in runs:
                nodes.update(run.nodes)
            if nodes:
                text += f"; on {' and '.join(sorted(nodes))}"
            folder = planner.store.run(runs[-1].id).store
            for name in (TRACEBACK, OUTPUT):
                if folder.read(name) is not None:
                    text += f"; {folder}/{name}"
                    break
            self.stderr.print(f"failed: {label}, {text}", markup=False)
        for node, reason in self.left_out.items():
            self.stderr.print(f"left out: {node}: {reason}", markup=False)
        self.failed = bool(planner.failed_runs)
        diverged = [point.point.display_label for point in planner.points if point.diverged]
        if diverged:
            self.stderr.print(f"diverged: all runs of {', '.join(diverged)}", markup=False)
        return bool(diverged)

    def _train_pending(self, planner: "Planner", packer: "Packer", ray: ExitStack) -> bool:
        """Train the pending runs on Ray, which ends with `ray`; return whether all are done."""
        from lmzoo.lab.cluster import connection

        witness = _start_witness()
        # A line tells the shell that this process has ended in order.
        ray.callback(witness.communicate, b"\n")
        end = functools.partial(self._end_now, planner.store, witness)
        STOPS.install()  # the import of Ray has installed handlers
        ray.enter_context(STOPS.deadline(end, connection.is_ray_unusable))
        from lmzoo.lab.sweep.screen.console import Console

        # Before `cluster` redirects stdout.
        console = Console(self.stderr, as_json=self.as_json, quiet=self.quiet)
        if not self.quiet:
            runs = sum(count for _, count, _ in planner.pending())
            what = f"{len(planner.points)} points, at most {runs} runs"
            self.stderr.print(f"{what}; starting Ray{connection.short_of_limits(', which')}")
        stopped = threading.Event()
        ray.callback(stopped.set)
        prepared = threading.Thread(target=packer.prepare, args=(planner.ready(), stopped))
        # Ray takes seconds to start, in which the engine is imported.
        ray.enter_context(connection.cluster(meanwhile=lambda: self._import_engine(prepared)))

        from lmzoo.lab.cluster.capacity import Capacity
        from lmzoo.lab.sweep.fleet.fleet import Fleet

        capacity = Capacity(self.resources, self.stderr.print)
        capacity.check()
        # Only now is it known whether the workers have GPUs.
        if not capacity.resources.gpus:
            for point in planner.points:
                point.point.check_on_cpu()
        console.devices = capacity.describe()
        if not self.quiet:
            self.stderr.print(f"{console.devices}; {planner.store.store}", markup=False)
        listeners = [console] + list(self.study.listeners)
        memory = 0
        if capacity.resources.gpus:
            memory = GPU_BYTES
        fleet = Fleet(planner, packer, listeners, memory)
        console.fleet = fleet
        console.workers = capacity.live
        console.waiting = lambda: capacity.waiting(fleet.wanted(capacity.limit()))
        self.left_out = fleet.health.left_out
        self._spinner.stop()
        with console:
            complete = self._import_engine().train(fleet, capacity)
        if STOPS.requested.is_set():
            raise KeyboardInterrupt
        return complete

    def _end_now(self, store: "StudyStore", witness: subprocess.Popen[bytes]):
        """End this process: an orderly end takes too long, or is impossible."""
        from lmzoo.lab.cluster import connection

        try:
            self._say_interrupted()
            # The line that says how to continue is printed already.
            witness.communicate(b"\n")
            if self._ranking:
                self._ranking.terminate()
            connection.kill_local_ray()
            _clear_worker_locks(store.store)
            # In a thread: a store that does not answer must not keep the process.
            closing = threading.Thread(target=_close, args=(store,), daemon=True)
            closing.start()
            closing.join(LOCK_SECONDS)
        finally:
            delete_temporary()
            os._exit(130)

    def _import_engine(self, prepared: threading.Thread | None = None) -> Any:
        if prepared:
            prepared.start()
        with gc_disabled():
            return importlib.import_module(f"lmzoo.lab.sweep.{ENGINES[self.engine]}")


def _start_witness() -> subprocess.Popen[bytes]:
    """Start a shell that says how to continue unless it gets a line from this process.

    Ray's core ends the process of a driver at once (`_exit(1)`) when Ray has ended on its machine.
    """
    words = ["/bin/sh", "-c", 'read line || echo "$0" >&2', DEATH]
    return subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)


def _clear_worker_locks(store: Store):
    if STOPS.requested.is_set():
        with suppress(UserError, OSError):  # a worker on another machine may last longer
            store.clear_locks(WORKER_LOCK.format("*"), LOCK_SECONDS)


def _close(store: "StudyStore"):
    """Close the store, and delete the temporary folders that libraries have made."""
    with suppress(Exception):  # the main thread may be closing it
        store.close()
    weakref.finalize._exitfunc()  # type: ignore[attr-defined]  # what Python calls at its end


def _start_ranking(store: str) -> subprocess.Popen[bytes]:
    """Start a process that prints the ranking, and gets no signal of a terminal or a job."""
    words = [sys.executable, "-m", "lmzoo", "rank", store]
    return subprocess.Popen(words, start_new_session=True)
