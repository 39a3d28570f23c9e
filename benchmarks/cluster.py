"""A sweep on many workers, simulated with the planner and the fleet of the engine.

    python benchmarks/cluster.py [--only "80 workers"]

`simulated_cluster.py` describes the devices `gpu`, `affine` and `full`. Each makespan is divided by
a lower bound:

    max(longest chain, work / workers)

The longest chain is the makespan on as many workers as there are runs; the work is the number of
epochs of all runs, times the least c(n) / n. `busy` is the share of the workers' time in which they
train, `paid` all of it in epochs. `CPU` is the time of planner and fleet for one epoch of one
run; the clock is not included. Where workers are slow, live shortly or are offered only, `against`
is the makespan divided by that without the slow or the bad ones, with workers that live, or with
all workers; `failed` are runs that failed.
Scenarios whose names contain `--only` are simulated, all by default.
"""

import functools
import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from simulated_cluster import DEVICES, Device, Scenario, simulate

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.lab.study.study import Study

STUDY = "sweeps.gru_ablation"


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of the table."""
    yield Scenario("8 workers", (0.0,) * 8)
    yield Scenario("80 workers", (0.0,) * 80)
    yield Scenario("80 announced, 8 there", (0.0,) * 8, announced=80)
    yield Scenario("32 announced, 3 there", (0.0,) * 3, announced=32)
    yield Scenario("80 that arrive in thirds", (0.0,) * 27 + (5.0,) * 27 + (10.0,) * 26)
    yield Scenario("8, one in ten lost every 20 epochs", (0.0,) * 8, lost=10)
    yield Scenario("80, one in ten lost every 20 epochs", (0.0,) * 80, lost=10)
    yield Scenario("80 workers, 60 settings", (0.0,) * 80, samples=60)
    yield Scenario("320 workers, 60 settings", (0.0,) * 320, samples=60)
    for workers in (4, 8, 40):
        yield Scenario(
            f"{workers} workers, one of a quarter of the speed", (0.0,) * workers, slow=1
        )
    yield Scenario("40 workers, half of a quarter of the speed", (0.0,) * 40, slow=20)
    for workers in (8, 40):
        for bad in ("dies", "raises"):
            name = f"{workers} workers, one {bad}"
            yield Scenario(name, (0.0,) * workers, bad=bad)
    yield Scenario("8 workers that live 5 epochs", (0.0,) * 8, life=5.0)
    yield Scenario("8 offered", (), offered=8)
    yield Scenario("80 offered", (), offered=80)


def main(
    only: Annotated[str, typer.Option(help="A part of the names of scenarios.")] = "",
    device: Annotated[str, typer.Option(help="Only this device: gpu, affine or full.")] = "",
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Test the script with a tiny study.")
    ] = False,
) -> None:
    """Simulate all scenarios and print the table."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for `sweeps`
    chosen = [scenario for scenario in scenarios() if only in scenario.name]
    if not chosen:
        names = ", ".join(f"'{scenario.name}'" for scenario in scenarios())
        raise UserError(f"no scenario has {only!r} in its name; known: {names}")
    devices = [known for known in DEVICES if device in ("", known.name)]
    if not devices:
        raise UserError(f"no device {device!r}; known: {', '.join(d.name for d in DEVICES)}")
    rows = []
    for scenario in chosen:
        for simulated in devices:
            # A scenario takes up to a minute, and the table needs all rows for its columns.
            echo(f"{scenario.name}, device {simulated.name} ...", err=True)
            row = {"scenario": scenario.name, "device": simulated.name}
            rows.append({**row, **measure(scenario, simulated, tiny=tiny)})
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*(f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values()))
    Console(width=140).print(table)


def measure(scenario: Scenario, device: Device, *, tiny: bool) -> dict[str, Any]:
    """Simulate a scenario; return its row."""
    done = simulate(study(tiny=tiny), scenario, device)
    runs = len(done.epochs)
    chain = makespan(device, (0.0,) * runs, scenario.samples, tiny=tiny)
    work = done.run_epochs * min(device.cost(n) / n for n in range(1, done.largest + 1))
    arrivals = scenario.arrivals or (0.0,) * scenario.offered
    bound = max(chain, when_done(work, arrivals))
    against = math.nan
    if scenario.slow or scenario.life or scenario.offered or scenario.bad:
        left_out = scenario.slow or int(bool(scenario.bad))
        others = arrivals[left_out:]
        against = done.now / makespan(device, others, scenario.samples, tiny=tiny)
    return {
        "runs": runs,
        "failed": len(done.fleet.planner.failed_runs),
        "run-epochs": done.run_epochs,
        "makespan": done.now,
        "chain": chain,
        "work / workers": work / len(arrivals),
        "ratio": done.now / bound,
        "against": against,
        "paid": done.present,
        "busy": done.busy / done.present,
        "CPU ms": 1e3 * done.cpu / done.run_epochs,
    }


def study(*, tiny: bool) -> Study:
    """Return the study that is simulated."""
    found = importlib.import_module(STUDY).STUDY
    if tiny:
        found = replace(found, points=found.points[:3], epochs=3, seeds=2)
    return found


@functools.cache
def makespan(device: Device, arrivals: tuple[float, ...], samples: int, *, tiny: bool) -> float:
    """Return the makespan with workers that arrive at these times and live."""
    scenario = Scenario("usual", arrivals, samples=samples)
    return simulate(study(tiny=tiny), scenario, device).now


def when_done(work: float, arrivals: tuple[float, ...]) -> float:
    """Return when workers that arrive at these times have done the work at the earliest."""
    done, workers, now = 0.0, 0, 0.0
    for at in [*sorted(arrivals), math.inf]:
        if workers and done + workers * (at - now) >= work:
            return now + (work - done) / workers
        done, now, workers = done + workers * (at - now if workers else 0.0), at, workers + 1
    raise AssertionError


if __name__ == "__main__":
    run_command(main)
