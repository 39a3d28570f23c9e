"""The overhead of a sweep, the time that packs save, and the same runs with torch and Tune alone.

    python benchmarks/sweep.py --out runs/bench/sweep.json

The main sweep (`sweeps/gru_ablation.py`, built-in captions) from the command to its ranking, with
`--fuse auto` and with `--fuse off`, each into a store of its own, after a small warm-up sweep.

    wall    wall time from the command to its exit, with Ray's start and the ranking
    bound   Σ `seconds` of all epochs of all its runs / cores

`seconds` is the wall time of an epoch of training (a pack member has its share), without
validation, test and files. On an idle machine with one thread per worker it equals CPU time. On a
busy machine it grows with the wall time, and the first ratio is too small. So the CPU time of all
processes is compared with the same sum too.

The rest of the wall time is compared with a sweep of Tune that trains nothing (`bare_tune.py`).
With `--plain` the same runs are also trained with torch and Tune alone (`plain_tune.py`), which
takes several times as long.
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
from measure import Ratio, save, speedup, time_ratio
from process_usage import ProcessTree

from lmzoo.command_line import run_command
from lmzoo.store.records import RECORDS, RunFolder, epoch_records

ROOT = Path(__file__).parents[1]
POLL = 0.5
"""Seconds between two readings of CPU time."""
TOLERANCE = 1e-3
"""Largest difference in nats of two losses after an epoch of the same training."""


@dataclass(frozen=True)
class SweepCost:
    """Seconds that a sweep took, and its runs."""

    wall: float
    cpu: float
    """CPU time of all its processes, except perhaps the last `POLL` seconds of each."""
    training: float
    """Sum of the seconds of all epochs."""
    runs: list[dict[str, Any]]
    """Config of each run, with its number of `epochs` and the `loss` after the first."""


def main(
    cores: Annotated[int, typer.Option(min=1, help="Concurrent workers, one core each.")] = 2,
    epochs: Annotated[int, typer.Option(help="0: the study's own.")] = 0,
    seeds: Annotated[int, typer.Option(help="0: the study's own.")] = 0,
    points: Annotated[str, typer.Option(help="LABEL,LABEL; default: all.")] = "",
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/sweep.json"),
    *,
    plain: Annotated[bool, typer.Option(help="Also train with torch and Tune alone.")] = False,
) -> None:
    """Run both sweeps, one after the other."""
    options = ["--max-concurrent", str(cores)]
    for name, value in (("--epochs", epochs), ("--seeds", seeds), ("--points", points)):
        options += [name, str(value)] if value else []
    # The first sweep of a clone compiles the kernels; later ones read them from a cache.
    run_sweep(["--points", "wild type", "--epochs", "1", "--samples", "1", "--seeds", "2"])
    bare = [run_bare_tune()]
    auto = run_sweep([*options, "--fuse", "auto"])
    bare.append(run_bare_tune())
    off = run_sweep([*options, "--fuse", "off"])
    bare.append(run_bare_tune())
    changes = " ".join(options[2:]).replace("--", "")
    at = f"captions, {cores} CPUs{', ' * bool(changes)}{changes}, {len(auto.runs)} runs"
    rows = compare(auto, off, statistics.median(bare), cores, at)
    if plain:
        rows += compare_with_plain_tune(auto, cores, at) + compare_with_plain_tune(
            auto, cores, at, "--reuse"
        )
    save(rows, out)


def run_sweep(options: list[str]) -> SweepCost:
    """Run the sweep in a process of its own, into a temporary store."""
    with tempfile.TemporaryDirectory() as storage:
        wall, cpu = run_script("sweeps/gru_ablation.py", "--storage", storage, *options)
        folders = [RunFolder(path.parent) for path in Path(storage).glob(f"*/*/{RECORDS}")]
        trained = [(f.config or {}, epoch_records(f.records())) for f in folders]
    seconds = sum(record["seconds"] for _, records in trained for record in records)
    runs = [
        {**config, "epochs": len(records), "loss": records[0]["valid_token"]}
        for config, records in trained
    ]
    return SweepCost(wall, cpu, seconds, runs)


def compare_with_plain_tune(ours: SweepCost, cores: int, at: str, *reuse: str) -> list[Ratio]:
    """Return the rows of the same runs trained with torch and Tune alone.

    Raises:
        AssertionError: The losses differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs, out = Path(folder) / "runs.json", Path(folder) / "out.json"
        runs.write_text(json.dumps(ours.runs))
        script = "benchmarks/plain_tune.py", str(runs), str(out), "--cores", str(cores)
        wall, _ = run_script(*script, *reuse)
        theirs = json.loads(out.read_text())
    pairs = zip(ours.runs, theirs, strict=True)
    difference = max(abs(run["loss"] - their["first"]) for run, their in pairs)
    assert difference < TOLERANCE, f"losses after an epoch differ by up to {difference}"
    what, rival = "sweep, --fuse auto", "torch and Tune alone" + ", processes kept" * bool(reuse)
    bounds = ours.training / cores, sum(their["seconds"] for their in theirs) / cores
    return [
        _row(speedup, f"{what}: wall", at, rival, ours.wall, wall),
        _row(speedup, f"{what}: training / cores", at, rival, *bounds),
    ]


def run_bare_tune() -> float:
    """Return the seconds of a sweep of Tune that trains nothing."""
    return run_script("benchmarks/bare_tune.py")[0]


def run_script(*script: str) -> tuple[float, float]:
    """Run a script in a process of its own; return its wall seconds and CPU seconds."""
    environment = {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local", "PYTHONPATH": str(ROOT)}
    begin, cpu = time.monotonic(), 0.0
    command = [sys.executable, *script]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}) as process:
        tree = ProcessTree(process.pid)
        while process.poll() is None:
            cpu = tree.seconds()
            time.sleep(POLL)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.monotonic() - begin, cpu


def compare(auto: SweepCost, off: SweepCost, bare: float, cores: int, at: str) -> list[Ratio]:
    """Return the rows, after a check that both sweeps have the same number of runs."""
    counts = len(auto.runs), len(off.runs)
    assert counts[0] == counts[1], f"{counts[0]} runs and {counts[1]} runs"
    rows = []
    for fuse, cost in (("auto", auto), ("off", off)):
        what, bound = f"sweep, --fuse {fuse}", cost.training / cores
        rest = cost.wall - bound
        rows += [
            _row(time_ratio, f"{what}: wall", at, "its training / cores", cost.wall, bound, 1.25),
            _row(time_ratio, f"{what}: CPU, all", at, "its training", cost.cpu, cost.training),
            _row(time_ratio, f"{what}: all but training", at, "bare Tune", rest, bare),
        ]
    what = "sweep, --fuse auto: wall"
    return [*rows, _row(speedup, what, at, "--fuse off", auto.wall, off.wall, 3)]


def _row(
    ratio_of: Callable[..., Ratio],
    what: str,
    at: str,
    rival: str,
    ours: float,
    theirs: float,
    goal: float | None = None,
) -> Ratio:
    """Return the row of one measurement of each side, in whole seconds."""
    ratio = ratio_of(what, at, rival, [ours], [theirs], goal=goal)
    return replace(ratio, absolute=f"{ours:.0f} / {theirs:.0f} s")


if __name__ == "__main__":
    run_command(main)
