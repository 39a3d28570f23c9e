"""The console of a running sweep: progress on stderr, one JSON line per finished run on stdout.

On a terminal, one table shows the points, the workers and the time left; its last state stays on
the screen. Elsewhere, one line is printed per finished run, and the progress at most every
`PROGRESS_SECONDS`.

**The table of points** fits the screen and keeps the order of the study.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lmzoo.base.printed import counted, duration
from lmzoo.lab.store.records import Record
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.point_planner import PointPlanner
from lmzoo.lab.sweep.fleet.costs import epochs_done, epochs_left
from lmzoo.lab.sweep.fleet.fleet import Fleet

PROGRESS_SECONDS = 10.0
"""Least time between two lines of progress where there is no terminal."""


class Console:
    """Prints the progress of a sweep; the fleet is known when its context is entered."""

    def __init__(self, stderr: RichConsole, *, as_json: bool = False, quiet: bool = False):
        self.as_json = as_json
        self.quiet = quiet
        self.stderr = stderr
        self._stdout = sys.stdout
        self.fleet: Fleet | None = None
        self.workers: Callable[[], int] = lambda: 0
        """Returns for how many workers there is room."""
        self.devices = ""
        """What the workers use: `2 CPU cores of this machine`."""
        self.waiting: Callable[[], str] = str
        """Returns what the sweep waits for; "" if nothing."""
        self.start_time = time.monotonic()
        self._running = set[str]()
        self._first: tuple[float, float] | None = None
        """Time of the first look, and the epochs that earlier sweeps had trained."""
        self._done = 0.0
        self._left = 1.0
        self._note = ""
        self._stopped = threading.Event()
        self._live: Live | None = None

    def __enter__(self) -> "Console":
        if self.quiet:
            return self
        # JSON lines on the same terminal would break the table.
        if self.stderr.is_terminal and not self.as_json:
            # `cluster` has a stdout of its own, which leaves out what Ray prints.
            self._live = Live(
                get_renderable=self.panel,
                console=self.stderr,
                refresh_per_second=2,
                redirect_stdout=False,
            )
            self._live.start()
        else:
            threading.Thread(target=self._print_progress, daemon=True).start()
        return self

    def __exit__(self, *_: object):
        self._stopped.set()
        if self._live is not None:
            self._live.stop()
            # Below the last table, which stays.
            self.stderr.print()

    def start(self, run: PlannedRun):
        self._running.add(run.id)

    def end(self, run: PlannedRun, test: Record | None):
        """Print one line about a run that has ended."""
        self._running.discard(run.id)
        if self.as_json:
            self._stdout.write(json.dumps(_run_json(run)) + "\n")
            self._stdout.flush()
        elif self._live is None and not self.quiet:
            self._print(
                f"{run.status:9} {run.stage:7} {self._loss(run)}  "
                f"epoch {run.last_epoch}/{run.budget}  {run.id}  {run.display_label}"
            )

    def _loss(self, run: PlannedRun) -> str:
        """Return the best loss with its unit and the sign that its reader expects."""
        assert self.fleet is not None
        study = self.fleet.planner.study
        loss = "—"
        if run.best_loss is not None:
            loss = f"{study.sign * run.best_loss:.4f} {study.shown_unit}"
        if study.shown_unit == UNIT:
            return f"valid loss {loss}"
        return loss  # the unit of a function or a command says what is measured

    def panel(self) -> RenderableType:
        """Return the table of points, the workers and the progress; it fits the screen."""
        if self.fleet is None:
            return Text("")
        self._look()
        waiting = self.waiting()
        width, height = self.stderr.size
        planner = self.fleet.planner
        room = height - 4 - bool(waiting)
        lines = max(3, room)
        table = point_table(planner.points, self._running, lines, width)
        bar = ProgressBar(
            total=self._done + self._left,
            completed=self._done,
            width=24,
            complete_style="cyan",
            finished_style="cyan",
        )
        progress = Table.grid(padding=(0, 2, 0, 0))
        progress.add_row(bar, _line(self._progress()))
        parts = [table, _line(self._workers(), "dim"), progress]
        if waiting:
            parts.append(_line(waiting, "yellow"))
        return Group(*parts)

    def _look(self):
        assert self.fleet is not None
        now = time.monotonic()
        planner = self.fleet.planner
        self._done = epochs_done(planner)
        self._left = epochs_left(planner)
        if self._first is None:
            self._first = now, self._done
        since, before = self._first
        # Epochs that earlier sweeps have trained say nothing of the rate of this one.
        trained = self._done - before
        self._note = "no epoch has ended yet"
        if trained > 0:
            seconds = (now - since) * self._left / trained
            self._note = f"about {duration(seconds)} left"

    def _progress(self) -> str:
        assert self.fleet is not None
        seconds = time.monotonic() - self.start_time
        spent = duration(seconds)
        if self.fleet.done:
            return f"100 % of the epochs, {spent}"
        # A study without epochs has nothing to divide by.
        whole = self._done + self._left
        share = self._done / max(1e-9, whole)
        percent = min(99, round(100 * share))  # 100 % is said when no run is left
        note = self._note
        if not self._left:
            note = "the last runs end"
        return f"{percent} % of the epochs, {spent} so far, {note}"

    def _workers(self) -> str:
        assert self.fleet is not None
        states = list(self.fleet.workers.values())
        training = [len(state.training) for state in states if state.training]
        room = max(len(states), self.workers())
        devices = ""
        if self.devices:
            devices = f" ({self.devices})"
        if self.fleet.done:
            return f"{counted(room, 'worker')}{devices}"
        runs = ""
        if training:
            runs = f" {counted(sum(training), 'run')}"
        return f"{len(training)} of {room} workers train{runs}{devices}"

    def _print_progress(self):
        shown = ""
        printed = time.monotonic()
        last = ""
        while not self._stopped.wait(1.0):
            waiting = self.waiting()
            if waiting != shown:
                self._print(waiting or "all workers have room")
            shown = waiting
            # A planner that decides looks as if it were done.
            if self.fleet is None or self.fleet.done:
                continue
            if time.monotonic() - printed >= PROGRESS_SECONDS:
                self._look()
                line = f"{self._progress()}; {self._workers()}"
                printed = time.monotonic()
                if line != last:
                    self._print(line)
                last = line

    def _print(self, line: str):
        self.stderr.print(line, highlight=False, markup=False, soft_wrap=True)


def _line(text: str, style: str = "") -> Text:
    """Return a line that is cut at the edge of the screen."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _run_json(run: PlannedRun) -> dict[str, Any]:
    return {
        "run": run.id,
        "point": run.display_label,
        "stage": run.stage,
        "seed": run.config["seed"],
        "setting": run.config["setting"],
        "status": run.status,
        "epochs": run.last_epoch,
        "valid_token": run.best_loss,
        "test_token": run.test_loss,
    }


UNIT = "nats/token"
"""Unit of the losses of rows of the zoo."""
NUMBERS = ("done", "running", "pending", "pruned")


def point_table(
    points: Sequence[PointPlanner],
    running: Collection[str],
    room: int,
    width: int,
) -> Table:
    """Return a table of at most `room` lines, at least 3, the header included.

    Where it is too short for all points, those in training come first.
    """
    numbers = (points[0].study.shown_unit,) + NUMBERS
    taken = sum(len(name) + 1 for name in numbers)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    # Labels are cut before numbers are.
    longest = max(10, width - taken)
    table.add_column("point", no_wrap=True, overflow="ellipsis", max_width=longest)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    order = sorted(points, key=lambda point: not counts(point, running)["running"])
    most = room - 1
    if len(points) > most:
        most -= 1  # a line says how many more there are
    chosen = set(order[:most])
    sums = Counter[str]()
    for point in points:
        if point in chosen:
            table.add_row(*_cells(point, running))
        else:
            sums.update(counts(point, running))
    rest = len(points) - len(chosen)
    if rest:
        texts = [str(sums[name]) for name in NUMBERS]
        table.add_row(f"... {rest} more", "", *texts, style="dim")
    return table


def counts(point: PointPlanner, running: Collection[str]) -> dict[str, int]:
    """Return how many runs of a point are done, running, pending and pruned."""
    found: dict[str, int] = dict.fromkeys(NUMBERS, 0)
    for run in point.tune_runs + point.confirm_runs:
        if run.status == "pruned":
            found["pruned"] += 1
        elif run.status:
            found["done"] += 1
        elif run.id in running:
            found["running"] += 1
        else:
            found["pending"] += 1
    found["pending"] += max(0, point.samples - len(point.tune_runs))
    if point.best_setting is None:
        found["pending"] += point.seeds
    return found


def _cells(point: PointPlanner, running: Collection[str]) -> list[str]:
    runs = point.tune_runs + point.confirm_runs
    losses = [run.best_loss for run in runs if run.best_loss is not None]
    best = ""
    if losses:
        best = f"{point.study.sign * min(losses):.4f}"
    label = point.point.display_label.replace("[", r"\[")
    cells = [label, best]
    for name, number in counts(point, running).items():
        text = str(number or "·")
        if number and name == "running":
            text = f"[green]{text}[/]"
        cells.append(text)
    return cells
