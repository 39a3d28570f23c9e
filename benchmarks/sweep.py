"""How much of a sweep is overhead, and what training its runs together saves.

    python benchmarks/sweep.py --out runs/bench/sweep.json

The main sweep (`sweeps/gru_ablation.py`, embedded captions) from nothing to its table, as a
user starts it, with `--fuse auto` and then with `--fuse off`, each into a store of its own,
after a small one that warms everything up.

    wall    by the clock, from the command to its exit: Ray's start and the ranking are in it
    bound   Σ `seconds` of all epochs of all its runs / cores

`seconds` is what a trial's clock showed while it trained an epoch (a fused member's share of
it), without validation, test and files: on a machine left alone, with one thread a trial,
its CPU time. On a busy one it grows with the wall, and the first ratio flatters. So the CPU of
all processes is put beside the same sum as well.

What is left of the wall is put beside a sweep of bare Tune that trains nothing (`bare_tune.py`).
With `--plain` the same runs are trained once more as torch and Tune do it by themselves
(`plain_tune.py`), which takes several times as long.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from measure import Ratio, faster, save, slower, table
from watch import Family

from lmzoo.command_line import run_command
from lmzoo.store.records import RECORDS, RunFolder, epoch_records

ROOT = Path(__file__).parents[1]
POLL = 0.5
SAME = 1e-3
"""Nats that two sides may differ by after an epoch of the same training."""


@dataclass(frozen=True)
class Spent:
    """What a sweep took, in seconds."""

    wall: float
    cpu: float
    """Of all its processes; what each used in its last `POLL` seconds may be missing."""
    training: float
    runs: list[dict[str, Any]]
    """Of each run its config, the `epochs` it was trained and the `loss` after the first."""


def main(
    cores: Annotated[int, typer.Option(min=1, help="Trials at a time, a core each.")] = 2,
    epoch_records: Annotated[int, typer.Option(help="0: as the study says.")] = 0,
    seeds: Annotated[int, typer.Option(help="0: as the study says.")] = 0,
    points: Annotated[str, typer.Option(help="LABEL,LABEL; all if empty.")] = "",
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("runs/bench/sweep.json"),
    *,
    plain: Annotated[bool, typer.Option(help="Beside torch and Tune alone too.")] = False,
) -> None:
    """Both sweeps, one after the other."""
    asked = ["--max-concurrent", str(cores)]
    for name, value in (("--epochs", epoch_records), ("--seeds", seeds), ("--points", points)):
        asked += [name, str(value)] if value else []
    # Loops are compiled by a clone's first sweep, and kept.
    sweep(["--points", "wild type", "--epochs", "1", "--samples", "1", "--seeds", "2"])
    nothing = [bare()]
    auto = sweep([*asked, "--fuse", "auto"])
    nothing.append(bare())
    off = sweep([*asked, "--fuse", "off"])
    nothing.append(bare())
    smaller = " ".join(asked[2:]).replace("--", "")
    at = f"captions, {cores} CPUs{', ' * bool(smaller)}{smaller}, {len(auto.runs)} runs"
    rows = compare(auto, off, statistics.median(nothing), cores, at)
    if plain:
        rows += beside_plain(auto, cores, at) + beside_plain(auto, cores, at, "--reuse")
    save(rows, out)
    typer.echo(table([vars(row) for row in rows]))


def sweep(asked: list[str]) -> Spent:
    """The sweep in a process of its own, into a store that is thrown away."""
    with tempfile.TemporaryDirectory() as storage:
        wall, cpu = clocked("sweeps/gru_ablation.py", "--storage", storage, *asked)
        folders = [RunFolder(path.parent) for path in Path(storage).glob(f"*/*/{RECORDS}")]
        trained = [(f.config or {}, epoch_records(f.records())) for f in folders]
    seconds = sum(record["seconds"] for _, records in trained for record in records)
    runs = [
        {**config, "epochs": len(records), "loss": records[0]["valid_token"]}
        for config, records in trained
    ]
    return Spent(wall, cpu, seconds, runs)


def beside_plain(ours: Spent, cores: int, at: str, *reuse: str) -> list[Ratio]:
    """The rows for the same runs trained by torch and Tune alone, which must lose the same."""
    with tempfile.TemporaryDirectory() as folder:
        runs, out = Path(folder) / "runs.json", Path(folder) / "out.json"
        runs.write_text(json.dumps(ours.runs))
        script = "benchmarks/plain_tune.py", str(runs), str(out), "--cores", str(cores)
        wall, _ = clocked(*script, *reuse)
        theirs = json.loads(out.read_text())
    pairs = zip(ours.runs, theirs, strict=True)
    apart = max(abs(run["loss"] - their["first"]) for run, their in pairs)
    assert apart < SAME, f"losses after an epoch are up to {apart} apart"
    what, rival = "sweep, --fuse auto", "torch and Tune alone" + ", processes kept" * bool(reuse)
    bounds = ours.training / cores, sum(their["seconds"] for their in theirs) / cores
    return [
        _row(faster, f"{what}: wall", at, rival, ours.wall, wall),
        _row(faster, f"{what}: training / cores", at, rival, *bounds),
    ]


def bare() -> float:
    """Seconds that a sweep of bare Tune takes, which trains nothing."""
    return clocked("benchmarks/bare_tune.py")[0]


def clocked(*script: str) -> tuple[float, float]:
    """Seconds that the script takes in a process of its own, and its CPU seconds."""
    own = {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local", "PYTHONPATH": str(ROOT)}
    begin, cpu = time.monotonic(), 0.0
    command = [sys.executable, *script]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **own}) as process:
        family = Family(process.pid)
        while process.poll() is None:
            cpu = family.seconds()
            time.sleep(POLL)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.monotonic() - begin, cpu


def compare(auto: Spent, off: Spent, nothing: float, cores: int, at: str) -> list[Ratio]:
    """The rows; both sweeps must have trained the same runs."""
    counts = len(auto.runs), len(off.runs)
    assert counts[0] == counts[1], f"{counts[0]} runs and {counts[1]}"
    rows = []
    for fuse, spent in (("auto", auto), ("off", off)):
        what, bound = f"sweep, --fuse {fuse}", spent.training / cores
        rest = spent.wall - bound
        rows += [
            _row(slower, f"{what}: wall", at, "its training / cores", spent.wall, bound, 1.25),
            _row(slower, f"{what}: CPU, all", at, "its training", spent.cpu, spent.training),
            _row(slower, f"{what}: all but training", at, "bare Tune", rest, nothing),
        ]
    what = "sweep, --fuse auto: wall"
    return [*rows, _row(faster, what, at, "--fuse off", auto.wall, off.wall, 3)]


def _row(
    how: Callable[..., Ratio],
    what: str,
    at: str,
    rival: str,
    ours: float,
    theirs: float,
    goal: float | None = None,
) -> Ratio:
    """One run of each side, in whole seconds."""
    ratio = how(what, at, rival, [ours], [theirs], goal=goal)
    return replace(ratio, absolute=f"{ours:.0f} / {theirs:.0f} s")


if __name__ == "__main__":
    run_command(main)
