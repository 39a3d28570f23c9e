"""How far the estimate of the time left is from the truth, over the shipped studies.

    python benchmarks/time_left.py --out runs/bench/time_left.json

Each study runs on the simulated cluster (`simulated_cluster.py`). An epoch of a pack of n runs
takes f (a + b n) exp(0.1 z): `pack` has a = 3, b = 1, close to two CPU cores; `gpu` has b = 0 and
`full` a = 0. f is between 1/2 and 2 and differs between the shapes of runs; z is normal. The first
epoch of a worker takes 4 s longer, and the first epoch of a shape up to 12 s, as compilation does.
The estimate is asked when a part of the run-epochs is done:

    error = max(estimate / truth, truth / estimate) − 1      of the interval's middle
    inside                                                   whether the truth is in the interval

`--real` adds real sweeps on this machine, with Ray and with the console's own estimates: that of
`make sweep` without compiled kernels and again with them, and one of several cells. It measures the
time from the command to its first line, too. Other work on the machine is part of the error: the
load is printed.
"""

import bisect
import dataclasses
import hashlib
import importlib
import json
import math
import random
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from real_sweeps import real_sweeps
from simulated_cluster import CLOSED_FORM, GPU_MEMORY, Device, MemoryStore, Simulation

from lmzoo.command_line import run_command
from lmzoo.data.corpus import open_corpus
from lmzoo.errors import UserError
from lmzoo.study.planner import Planner
from lmzoo.study.resolve import corpus_config, resolve
from lmzoo.sweep.fleet.fleet import Fleet
from lmzoo.sweep.fleet.packing import Packer
from lmzoo.sweep.fleet.time_left import Interval, time_left
from lmzoo.sweep.screen.work_left import work_left

ROOT = Path(__file__).parents[1]
PARTS = (0.1, 0.25, 0.5, 0.75)
DEVICES = (
    Device("pack", 0, lambda n: (3.0 + n) / 4),
    Device("gpu", GPU_MEMORY, lambda n: 1.0),
    Device("full", 0, float),
)
WORKERS = (2, 16)
START, COMPILATION = 4.0, 12.0
"""Seconds that the first epoch of a worker, and at most of a shape, take longer (`--real`)."""
EVERY = 10
"""Run-epochs between two estimates."""


@dataclass
class TimedSimulation(Simulation):
    """A simulation that asks for the time left while it runs."""

    estimates: list[tuple[int, float, Interval]] = field(default_factory=list)
    """(run-epochs done, time, time left)."""
    noise: random.Random = field(default_factory=lambda: random.Random(0))
    compiled: set[str] = field(default_factory=set)
    """Workers and shapes that have trained an epoch."""

    def schedule(self, at: float, kind: str, worker: str) -> None:
        """Add an event; an epoch takes as long as the shape of its runs asks."""
        if kind == "epoch":
            key = self.fleet.workers[worker].key
            draw = int(hashlib.md5(key.encode()).hexdigest(), 16) % 1000 / 1000
            factor = 2 ** (2 * draw - 1) * math.exp(self.noise.gauss(0, 0.1))
            at = self.now + (at - self.now) * factor
            at += START * (worker not in self.compiled)
            at += COMPILATION * draw * (key not in self.compiled)
            self.compiled |= {worker, key}
        super().schedule(at, kind, worker)

    def on_epoch(self, worker: str) -> None:
        """End an epoch, and ask for the time left from time to time."""
        super().on_epoch(worker)
        if self.run_epochs >= len(self.estimates) * EVERY:
            work = work_left(self.fleet.planner, self.fleet.packer, self.device.memory)
            left = time_left(work, self.fleet.pace, len(self.live))
            if left:
                self.estimates.append((self.run_epochs, self.now, left))


def simulate(name: str, device: Device, workers: int) -> TimedSimulation:
    """Return the simulation of a study at its end."""
    study = importlib.import_module(f"sweeps.{name}").STUDY
    if not study.corpus.startswith("captions"):  # the simulation needs the names of the tokens only
        study = dataclasses.replace(study, corpus="captions")
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields, None)
    points = resolve(study, corpus, fields)
    CLOSED_FORM.update(point.label for point in points if point.closed_form)
    planner = Planner(study, points, corpus, MemoryStore())  # type: ignore[arg-type]
    simulation = TimedSimulation(Fleet(planner, Packer(corpus, None)), device)
    for i in range(workers):
        simulation.on_arrive(f"w{i}")
        simulation.schedule(0.0, "ask", f"w{i}")
    simulation.run_events()
    return simulation


def errors(estimates: list[tuple[int, float, Interval]], end: float) -> dict[str, Any]:
    """Return the error and whether the truth is inside, at each part of the work."""
    row: dict[str, Any] = {}
    total = estimates[-1][0]
    for part in PARTS:
        at = bisect.bisect_left([done for done, _, _ in estimates], part * total)
        _, now, left = estimates[at]
        truth = end - now
        row[f"{part:.0%}"] = max(left.middle / truth, truth / left.middle) - 1
        row[f"in {part:.0%}"] = left.low <= truth <= left.high
        row[f"wide {part:.0%}"] = left.high / left.low
    return row


def main(
    studies: Annotated[str, typer.Option(help="NAME,NAME; default: all in sweeps/.")] = "",
    real: Annotated[bool, typer.Option("--real", help="Add real sweeps.")] = False,  # noqa: FBT002
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/time_left.json"),
) -> None:
    """Simulate the studies and print how far the estimates were from the truth."""
    sys.path.insert(0, str(ROOT))  # for `sweeps`
    files = sorted(p for p in ROOT.glob("sweeps/*.py") if "STUDY = Study(" in p.read_text())
    names = studies.split(",") if studies else [p.stem for p in files]
    rows: list[dict[str, Any]] = []
    for name in names:
        for device in DEVICES:
            for workers in WORKERS:
                try:
                    done = simulate(name, device, workers)
                except UserError as error:
                    typer.echo(f"{name}: {error}")
                    continue
                row = {"study": name, "device": device.name, "workers": workers}
                rows.append({**row, **errors(done.estimates, done.now)})
                typer.echo(line(rows[-1]))
    if real:
        for title, estimates, end, facts in real_sweeps():
            rows.append({"study": title, "device": "", "workers": 0, **errors(estimates, end)})
            rows[-1] |= facts
            typer.echo(line(rows[-1]))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    text = table(rows)
    out.with_suffix(".md").write_text(text)
    typer.echo(text)


def line(row: dict[str, Any]) -> str:
    """Return a row as text."""
    return "  ".join(f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values())


def table(rows: list[dict[str, Any]]) -> str:
    """Return the summary over studies and devices, as Markdown."""
    simulated = [row for row in rows if row["workers"]]
    real = [row for row in rows if not row["workers"]]
    lines = [
        "| work done | sweeps | median error | 90 % of sweeps | within 30 % | truth in the interval"
        " | interval, high / low | real sweeps |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for part in (f"{p:.0%}" for p in PARTS):
        own = sorted(row[part] for row in simulated)
        inside = statistics.mean(row[f"in {part}"] for row in simulated)
        width = statistics.median(row[f"wide {part}"] for row in simulated)
        most = own[int(0.9 * (len(own) - 1))]
        within = statistics.mean(error <= 0.3 for error in own)
        shown = ", ".join(f"{row[part]:.0%}" for row in real)
        lines.append(
            f"| {part} | {len(own)} | {statistics.median(own):.0%} | {most:.0%} | {within:.0%} "
            f"| {inside:.0%} | {width:.2f} | {shown} |"
        )
    if real:
        lines += ["", f"Real sweeps: {'; '.join(row['study'] for row in real)}."]
        lines += [f"The first line came after {real[0]['first line']:.1f} s."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_command(main)
