"""What a person sees of a running sweep: calm, on stderr; one JSON line a run on stdout.

On a terminal a live panel shows what runs, what is done, the best of each point so far
and the time left. Elsewhere one line is written per finished run.
"""

import json
import sys
import time
from typing import Any

from rich.console import Console as Rich
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from lmzoo.sweep.planned_run import PlannedRun
from lmzoo.sweep.planner import Planner
from lmzoo.sweep.point_planner import PointPlanner

ROWS = 14
"""Points shown in the live panel; the rest are counted in one line."""


class Console:
    """The sweep's one voice while it runs."""

    def __init__(self, agenda: Planner, *, as_json: bool) -> None:
        self.agenda, self.as_json = agenda, as_json
        self.rich, self._out = Rich(stderr=True), sys.stdout
        self.began = time.monotonic()
        self.finished = 0
        self.epochs = 0
        self._live: Live | None = None

    def __enter__(self) -> "Console":
        if self.rich.is_terminal:
            self._live = Live(
                get_renderable=self.panel, console=self.rich, refresh_per_second=2, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def epoch(self) -> None:
        """A running job has done one more epoch."""
        self.epochs += 1

    def end(self, job: PlannedRun) -> None:
        """A job has ended: one line of it."""
        self.finished += 1
        self.epochs += 1
        if self.as_json:
            self._out.write(json.dumps(_line(job)) + "\n")
            self._out.flush()
        elif self._live is None:
            loss = f"{job.value:.4f}" if job.value is not None else "—"
            self.rich.print(
                f"{job.status:9} {job.stage:7} loss {loss}  epoch {max(job.curve, default=0)}"
                f"/{job.budget}  {job.run}  {job.label}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def panel(self) -> RenderableType:
        """Points with their progress, and one line of time."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("point", "tuned", "confirmed", "best", "now"):
            table.add_column(name, justify="left" if name in ("point", "now") else "right")
        points = sorted(self.agenda.points, key=lambda p: not p.running)[:ROWS]
        for point in points:
            table.add_row(*self._row(point))
        hidden = len(self.agenda.points) - len(points)
        if hidden:
            table.add_row(f"[dim]and {hidden} more points[/]")
        return Group(f"[bold]{self.agenda.study.question}[/]", table, self._bar())

    def time_left(self) -> float | None:
        """Seconds left at the pace so far; None before there is a pace."""
        if not self.epochs:
            return None
        pace = (time.monotonic() - self.began) / self.epochs
        return pace * self._owed_epochs()

    def _row(self, point: PointPlanner) -> tuple[str, ...]:
        tuned = sum(bool(job.status) for job in point.tuned)
        confirmed = sum(bool(job.status) for job in point.confirmed)
        values = [job.value for job in point.tuned + point.confirmed if job.value is not None]
        now = ", ".join(
            f"{job.stage} {max(job.curve, default=0)}/{job.budget}"
            for job in point.running.values()
        )
        return (
            point.point.label,
            f"{tuned}/{point.samples}",
            f"{confirmed}/{point.study.seeds}",
            f"{min(values):.4f}" if values else "",
            f"[green]{now}[/]",
        )

    def _bar(self) -> RenderableType:
        owed = self._owed_epochs()
        bar = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:3.0f} % of the epochs"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
        )
        left = self.time_left()
        note = f"{self.finished} runs done, about {duration(left)} left" if left is not None else ""
        bar.add_task("", total=self.epochs + owed, completed=self.epochs, left=note)
        return bar

    def _owed_epochs(self) -> int:
        return sum(epochs for _, _, epochs in self.agenda.owed())


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _line(job: PlannedRun) -> dict[str, Any]:
    return {
        "run": job.run,
        "point": job.label,
        "stage": job.stage,
        "seed": job.config["seed"],
        "setting": job.config["setting"],
        "status": job.status,
        "epochs": max(job.curve, default=0),
        "valid_token": job.value,
    }
