"""Measure how time and memory of each command grow with the number of runs, beside polars.

    python benchmarks/growth.py
    python benchmarks/growth.py --runs 1000 --runs 10000 --runs 100000 --folder /tmp/growth

The stores are fabricated: real records of a study, copied under more seeds and more points, in the
archives that a sweep leaves. A slope of 1 is linear: it is the logarithm of the ratio of the CPU
seconds of the last two sizes, less those of the start of Python, by that of the runs. `polars` has
the same answer without lmzoo: the mean and the standard error of each point from one file of the
losses. The script fails nothing.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
import typer

from lmzoo.base.command_line import run_command
from lmzoo.base.streams import echo
from lmzoo.lab.analysis.study_parquet import read_rows
from lmzoo.lab.store.archive import FOLDER, RUNS
from lmzoo.lab.store.records import (
    CONFIG,
    RECORDS,
    STUDY,
    json_bytes,
    parse_json,
    parse_lines,
    record_line,
)

RECORDED = Path(__file__).parents[1] / "docs/results/records/gru_ablation-captions.parquet"
SEQUENCES = 100
"""Test sequences of a run, for `compare`."""
POLARS = """
import sys, polars as pl
loss = pl.col("loss")
runs = pl.scan_csv(sys.argv[1]).group_by("variant")
print(runs.agg(pl.len(), mean=loss.mean(), sd=loss.std()).sort("mean").collect())
"""


class Cost(NamedTuple):
    """What a process took."""

    seconds: float
    """CPU seconds, of the process and of those that it started."""
    wall: float
    megabytes: float


def fabricate(folder: Path, runs: int, points: int | None = None) -> Path:
    """Write a store with about this many confirm runs, and the CSV of their losses; return it."""
    rows = read_rows(RECORDED)
    study = next(parse_json(content) for _, name, content in rows if name == STUDY)
    files = {(run, name): content for run, name, content in rows}
    chosen = study["chosen"]
    wanted = points or len(study["points"])
    seeds = max(1, runs // wanted)
    kinds = [point for point in study["points"] if chosen[point["id"]]["runs"]]
    known, ids = [], {}
    archive = _Archive(folder / FOLDER)
    losses = []
    for i in range(wanted):
        kind = kinds[i % len(kinds)]
        copy = i // len(kinds)
        label = f"{kind['label']} copy {copy}" if copy else kind["label"]
        name = f"{kind['id'][:6]}{copy:04x}" if copy else kind["id"]
        known.append({**kind, "id": name, "label": label})
        sources = chosen[kind["id"]]["runs"]
        own = [f"{i:05x}{seed:07x}" for seed in range(seeds)]
        ids[name] = {**chosen[kind["id"]], "runs": own}
        for seed, run in enumerate(own):
            source = sources[seed % len(sources)]
            config = {**parse_json(files[source, CONFIG]), "run": run, "seed": seed}
            config["point"] = {"id": name, "label": label}
            events = [event for event in parse_lines(files[source, RECORDS], source) if event]
            shift = 1e-4 * (seed // len(sources))
            for event in events:
                event["run"] = run
                if event["event"] == "test":
                    event["token"] += shift
                    losses.append((label, seed, event["token"]))
            archive.add(run, config, events, np.random.default_rng((i, seed)))
    archive.close()
    study |= {"points": known, "chosen": ids, "looks": [[seeds, 0.05, seeds]]}
    study["budget"] |= {"seeds": seeds, "reference_seeds": seeds}
    (folder / STUDY).write_bytes(json_bytes(study))
    frame = pl.DataFrame(losses, ["variant", "seed", "loss"], orient="row")
    frame.write_csv(folder.with_suffix(".csv"))
    return folder


class _Archive:
    """The files of an archive, `RUNS` runs each, as `store/archive.py` writes them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._count = 0
        self._zip: zipfile.ZipFile | None = None

    def add(
        self, run: str, config: dict[str, Any], events: list[dict[str, Any]], random: Any
    ) -> None:
        if self._count % RUNS == 0:
            self.close()
            path = self._folder / f"{self._count // RUNS + 1:05}.zip"
            self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._count += 1
        assert self._zip is not None, "a file is open"
        lines = "".join(f"{record_line(event)}\n" for event in events)
        self._zip.writestr(f"{run}/{CONFIG}", json_bytes(config))
        self._zip.writestr(f"{run}/{RECORDS}", lines)

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()


def commands(store: Path) -> dict[str, list[str]]:
    """Return what is measured on a store: name -> command."""
    lmzoo = [sys.executable, "-m", "lmzoo"]
    table = str(store.with_suffix(".csv"))
    asked = ["--by", "variant", "--metric", "loss", "--seed", "seed", "--margin", "0.02"]
    return {
        "start of Python": [sys.executable, "-c", "import polars"],
        "lmzoo rank": [*lmzoo, "rank", str(store)],
        "lmzoo report": [*lmzoo, "report", str(store), "--out", f"{store}.html"],
        "lmzoo figure": [*lmzoo, "figure", str(store), "--out", f"{store}.svg", "--kind", "forest"],
        "lmzoo plan": [*lmzoo, "plan", str(store), "--effect", "0.02"],
        "lmzoo records save": [*lmzoo, "records", "save", str(store), f"{store}.parquet"],
        "lmzoo rank FILE": [*lmzoo, "rank", f"{store}.parquet"],
        "lmzoo judge": [*lmzoo, "judge", table, *asked],
        "polars": [sys.executable, "-c", POLARS, table],
    }


def measure(command: list[str], limit: float) -> Cost | None:
    """Run a command; None if it fails or takes longer than the limit."""
    begin = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    )  # fmt: skip
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = status
            break
        if time.monotonic() - begin > limit:
            process.kill()
            process.wait()
            return None
        time.sleep(0.02)
    if status:
        return None
    wall = time.monotonic() - begin
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def _shown(cost: Cost | None) -> str:
    if cost is None:
        return "none"
    return f"{cost.seconds:.1f} s ({cost.wall:.1f}), {cost.megabytes:.0f} MB"


def slope(sizes: list[int], costs: list[Cost | None], start: float) -> float:
    """Return the exponent of the growth between the last two sizes; NaN if one is not known."""
    known = [(n, cost) for n, cost in zip(sizes, costs, strict=True) if cost is not None]
    if len(known) < 2:
        return math.nan
    (n, before), (m, after) = known[-2:]
    ratio = (after.seconds - start) / max(before.seconds - start, 1e-2)
    return math.log(max(ratio, 1e-3)) / math.log(m / n)


def growth(folder: Path, runs: list[int], points: int | None, limit: float) -> Iterator[str]:
    """Yield the lines of the table: each command at each size, and its slope."""
    stores = {}
    for count in runs:
        store = folder / f"growth-{count}"
        stores[count] = store if store.exists() else fabricate(store, count, points)
        size = sum(path.stat().st_size for path in store.rglob("*.zip"))
        yield f"{count:,} runs: {size / 1e6:.0f} MB of archives"
    found: dict[str, list[Cost | None]] = {}
    for store in stores.values():
        for name, command in commands(store).items():
            found.setdefault(name, []).append(measure(command, limit))
    start = min(cost.seconds for cost in found["start of Python"] if cost)
    head = " | ".join(f"{count:,} runs" for count in runs)
    yield f"CPU (wall), memory | {head} | slope"
    for name, costs in found.items():
        cells = " | ".join(map(_shown, costs))
        yield f"{name} | {cells} | {slope(runs, costs, start):.2f}"
    pages = {count: Path(f"{store}.html") for count, store in stores.items()}
    sizes = {count: page.stat().st_size / 1e6 for count, page in pages.items() if page.exists()}
    yield f"pages in MB: {json.dumps(sizes)}"


def main(
    runs: Annotated[list[int] | None, typer.Option(help="Runs of a store; repeatable.")] = None,
    points: Annotated[int | None, typer.Option(help="Points of a store. Default: 14.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where stores are made, and kept.")] = None,
    limit: Annotated[float, typer.Option(help="Seconds after which a command is stopped.")] = 300.0,
) -> None:  # fmt: skip
    """Print the cost of each command at each size, and its slope."""
    with tempfile.TemporaryDirectory() as temporary:
        for line in growth(folder or Path(temporary), runs or [1000, 10000], points, limit):
            echo(line)


if __name__ == "__main__":
    run_command(main)
