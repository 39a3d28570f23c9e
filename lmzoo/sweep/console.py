"""The console of a running sweep: progress on stderr, one JSON line per finished run on stdout.

On a terminal, a live panel shows the running points, the best loss of each point and the time left.
Elsewhere, one line is printed per finished run.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from lmzoo.store.records import Record
from lmzoo.study.planned_run import PlannedRun
from lmzoo.study.planner import Planner
from lmzoo.study.point_planner import PointPlanner

MAX_POINTS = 14
"""Points shown in the live panel; the others are only counted."""


class Console:
    """Prints the progress of a sweep."""

    def __init__(self, planner: Planner, *, as_json: bool) -> None:
        self.planner, self.as_json = planner, as_json
        self.stderr, self._stdout = RichConsole(stderr=True), sys.stdout
        self.start_time = time.monotonic()
        self.run_count = self.epoch_count = 0
        self.waiting: Callable[[], str] = str
        """Returns what the sweep waits for; "" if nothing."""
        self._running: dict[str, PlannedRun] = {}
        self._stopped = threading.Event()
        self._live: Live | None = None

    def __enter__(self) -> "Console":
        if self.stderr.is_terminal:
            self._live = Live(
                get_renderable=self.panel, console=self.stderr, refresh_per_second=2, transient=True
            )
            self._live.start()
        else:
            threading.Thread(target=self._print_waiting, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._live is not None:
            self._live.stop()

    def start(self, run: PlannedRun) -> None:
        """Show a run among the running ones."""
        self._running[run.id] = run

    def epoch(self, run: PlannedRun, record: Record) -> None:
        """Count an epoch."""
        self.epoch_count += 1

    def end(self, run: PlannedRun, test: Record | None) -> None:
        """Count a run that has ended, and print one line about it."""
        self.run_count += 1
        self._running.pop(run.id, None)
        if self.as_json:
            self._stdout.write(json.dumps(_run_json(run)) + "\n")
            self._stdout.flush()
        elif self._live is None:
            loss = f"{run.best_loss:.4f}" if run.best_loss is not None else "—"
            self.stderr.print(
                f"{run.status:9} {run.stage:7} loss {loss}  epoch {run.last_epoch}/{run.budget}"
                f"  {run.id}  {run.display_label}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def panel(self) -> RenderableType:
        """Return the live panel: the points, with running ones first, and a progress bar."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("point", "tuned", "confirmed", "best", "now"):
            table.add_column(name, justify="left" if name in ("point", "now") else "right")
        running: dict[str, list[PlannedRun]] = {}
        for run in [*self._running.values()]:
            running.setdefault(run.label, []).append(run)
        points = sorted(self.planner.points, key=lambda p: p.point.label not in running)
        shown = points[:MAX_POINTS]
        for point in shown:
            table.add_row(*self._cells(point, running.get(point.point.label, [])))
        hidden = len(points) - len(shown)
        if hidden:
            table.add_row(f"[dim]and {hidden} more points[/]")
        waiting = self.waiting()
        return Group(table, self._progress(), *([f"[yellow]{waiting}[/]"] if waiting else []))

    def seconds_left(self) -> float | None:
        """Return the estimated time left; None before the first epoch."""
        if not self.epoch_count:
            return None
        seconds_per_epoch = (time.monotonic() - self.start_time) / self.epoch_count
        return seconds_per_epoch * self._pending_epochs()

    def _print_waiting(self) -> None:
        """Print what the sweep waits for, whenever it changes; the panel shows it on a terminal."""
        shown = ""
        while not self._stopped.wait(1.0):
            waiting = self.waiting()
            if waiting != shown:
                self.stderr.print(waiting or "all workers have room", highlight=False)
            shown = waiting

    def _cells(self, point: PointPlanner, running: list[PlannedRun]) -> tuple[str, ...]:
        tuned = sum(bool(run.status) for run in point.tune_runs)
        confirmed = sum(bool(run.status) for run in point.confirm_runs)
        runs = point.tune_runs + point.confirm_runs
        losses = [run.best_loss for run in runs if run.best_loss is not None]
        now = ", ".join(f"{r.stage} {r.last_epoch}/{r.budget}" for r in running)
        return (
            point.point.display_label,
            f"{tuned}/{point.samples}",
            f"{confirmed}/{point.study.seeds}",
            f"{min(losses):.4f}" if losses else "",
            f"[green]{now}[/]",
        )

    def _progress(self) -> RenderableType:
        bar = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:3.0f} % of the epochs"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        total, left = self.epoch_count + self._pending_epochs(), self.seconds_left()
        note = "" if left is None else f"{self.run_count} runs done, about {duration(left)} left"
        bar.add_task("", total=total, completed=self.epoch_count, note=note)
        return bar

    def _pending_epochs(self) -> int:
        return sum(epochs for _, _, epochs in self.planner.pending())


def duration(seconds: float) -> str:
    """Format a time as `45 s`, `12 min` or `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    }
