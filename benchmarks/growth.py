"""Measure how time and memory of each command grow with the number of runs, and those of rivals.

    python benchmarks/growth.py
    python benchmarks/growth.py --runs 1000 --runs 10000 --runs 100000 --folder /tmp/growth
    python benchmarks/growth.py --python /tmp/rivals/bin/python     packages of the rivals

The stores are fabricated: the records of a study under more seeds, with the identities that its
sweep gives them, in the archives that it leaves; with `--points`, under more points, too, which no
sweep knows. A slope of 1 is linear: it is the logarithm of the ratio of the CPU seconds of the last
two sizes, less those of the start of Python, by that of the runs.

The rivals have the same answer without lmzoo, the mean and the deviation of each point: polars and
DuckDB from one file of the losses, the reader of each tracker from its own files, of which there
is one run for `TRACKED` of the store. A rival that `--python` does not have is named. The script
fails nothing.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import polars as pl
import typer
from growth_rivals import ASKED, BY_COLUMN, DUCKDB, TRACKERS, missing

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
    run_identity,
)

STUDY_NAME = "gru_ablation-captions"
RECORDED = Path(__file__).parents[1] / f"docs/results/records/{STUDY_NAME}.parquet"
SCRIPT = Path(__file__).parents[1] / "sweeps/gru_ablation.py"
START = "start of Python"
BASELINES = 2
TRACKED = 10
"""Runs of a store for one in the files of a tracker, which take long to write."""
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


class Recorded(NamedTuple):
    """The study whose runs are copied."""

    study: dict[str, Any]
    configs: dict[str, dict[str, Any]]
    events: dict[str, list[dict[str, Any]]]


def recorded() -> Recorded:
    """Read the study."""
    rows = read_rows(RECORDED)
    study = next(parse_json(content) for _, name, content in rows if name == STUDY)
    configs = {run: parse_json(content) for run, name, content in rows if name == CONFIG}
    events = {
        run: [event for event in parse_lines(content, run) if event]
        for run, name, content in rows
        if name == RECORDS
    }
    return Recorded(study, configs, events)


def fabricate(folder: Path, runs: int, points: int | None = None) -> Path:
    """Write a store with about this many runs, and the CSV of their losses; return it."""
    source = recorded()
    study = source.study
    wanted = points or len(study["points"])
    contrasts = sum(point["id"] in study["chosen"] for point in study["points"]) - BASELINES
    ratio = contrasts**0.5  # of the seeds of the reference and of another point
    seeds = max(1, int(runs / (wanted - 1 + ratio)))
    store = folder / STUDY_NAME
    archive = _Archive(store / FOLDER)
    losses: list[tuple[str, int, float]] = []
    known = []
    chosen = {}
    for i in range(wanted):
        point, copy = _point(study["points"], i)
        setting = study["chosen"][study["points"][i % len(study["points"])]["id"]]
        count = seeds
        if point["id"] == study["reference"]:
            count = round(seeds * ratio)
        own = []
        for seed in range(1, count + 1):
            run = setting["runs"][(seed - 1) % len(setting["runs"])]
            config = {**source.configs[run], "seed": seed, "point": point}
            name = _name(config, copy)
            shift = 1e-6 * (seed // len(setting["runs"]))
            losses += archive.add(name, config, source.events[run], shift)
            own.append(name)
        known.append({**study["points"][i % len(study["points"])], **point})
        chosen[point["id"]] = {**setting, "runs": own}
    for run, config in source.configs.items():
        if config["stage"] == "tune":
            archive.add(run, config, source.events[run], 0.0)
    archive.close()
    study |= {"points": known, "chosen": chosen, "looks": [[seeds, 0.05, seeds]]}
    study["budget"] |= {"seeds": seeds, "reference_seeds": round(seeds * ratio)}
    (store / STUDY).write_bytes(json_bytes(study))
    frame = pl.DataFrame(losses, ["variant", "seed", "loss"], orient="row")
    frame.write_csv(_table(store))
    return store


def _point(points: Sequence[dict[str, Any]], index: int) -> tuple[dict[str, str], int]:
    """Return id and label of a point, and which copy it is; 0 is the point itself."""
    point = points[index % len(points)]
    copy = index // len(points)
    if not copy:
        return {"id": point["id"], "label": point["label"]}, 0
    return {"id": f"{point['id'][:6]}{copy:04x}", "label": f"{point['label']} copy {copy}"}, copy


def _name(config: dict[str, Any], copy: int) -> str:
    """Return the identity that a sweep gives to a run; copies of points have other ones."""
    if not copy:
        return run_identity(config)
    return run_identity({**config, "fingerprint": f"copy {copy}"})


def _table(store: Path) -> Path:
    return store.parent / "losses.csv"


class _Archive:
    """The files of an archive, `RUNS` runs each, as `store/archive.py` writes them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._count = 0
        self._zip: zipfile.ZipFile | None = None

    def add(
        self, run: str, config: dict[str, Any], events: list[dict[str, Any]], shift: float
    ) -> list[tuple[str, int, float]]:
        """Add a run with these events under its name; return its row of the table."""
        if self._count % RUNS == 0:
            self.close()
            path = self._folder / f"{self._count // RUNS + 1:05}.zip"
            self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._count += 1
        assert self._zip is not None, "a file is open"
        rows = []
        lines = []
        for event in events:
            own = {**event, "run": run}
            if event["event"] == "test":
                own["token"] += shift
                rows.append((config["point"]["label"], config["seed"], own["token"]))
            lines.append(record_line(own) + "\n")
        self._zip.writestr(f"{run}/{CONFIG}", json_bytes({**config, "run": run}))
        self._zip.writestr(f"{run}/{RECORDS}", "".join(lines))
        return rows

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()


def commands(store: Path, python: str, lacks: list[str], *, is_whole: bool) -> dict[str, list[str]]:
    """Return what is measured on a store: name -> command.

    Rivals that need what the interpreter `lacks` are left out. A store that `is_whole` has all
    runs of its sweep, which would train others.
    """
    lmzoo = [sys.executable, "-m", "lmzoo"]
    table = str(_table(store))
    asked = [*BY_COLUMN, "loss", *ASKED]
    figure = ["--out", f"{store}.svg", "--kind", "forest"]
    found = {
        START: [sys.executable, "-c", "import polars"],
        "lmzoo rank": [*lmzoo, "rank", str(store)],
        "lmzoo report": [*lmzoo, "report", str(store), "--out", f"{store}.html"],
        "lmzoo figure": [*lmzoo, "figure", str(store), *figure],
        "lmzoo plan": [*lmzoo, "plan", str(store), "--effect", "0.02"],
        "lmzoo records save": [*lmzoo, "records", "save", str(store), f"{store}.parquet"],
        "lmzoo rank FILE": [*lmzoo, "rank", f"{store}.parquet"],
        "lmzoo judge": [*lmzoo, "judge", table, *asked],
        "polars": [sys.executable, "-c", POLARS, table],
    }
    if "duckdb" not in lacks:
        found["DuckDB"] = [python, "-c", DUCKDB, table]
    budget = json.loads((store / STUDY).read_bytes())["budget"]
    sweep = [sys.executable, str(SCRIPT), "--out", str(store.parent)]
    sweep += ["--seeds", str(budget["seeds"])]
    found["the sweep --dry-run"] = [*sweep, "--dry-run"]
    if is_whole:
        found["the sweep, nothing left"] = sweep
    for tracker in TRACKERS:
        path = store.parent / tracker.name
        if not path.exists():
            losses = pl.read_csv(_table(store)).gather_every(TRACKED)
            tracker.write(path, losses.rows())
        judged = [*lmzoo, "judge", str(path), *tracker.judged, *ASKED]
        found[f"lmzoo judge {tracker.name}"] = judged
        if tracker.package not in lacks:
            found[tracker.rival] = [python, "-c", tracker.script, str(path)]
    return found


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


def growth(
    folder: Path, runs: list[int], points: int | None, limit: float, python: str, only: str
) -> Iterator[str]:
    """Yield each cost as it is known; then the lines of the table: a command, and its slope."""
    lacks = missing(python)
    for package in lacks:
        yield f"{python} has no {package}, which is not measured: pip install {package}"
    stores = {}
    for count in runs:
        home = folder / f"growth-{count}"
        store = home / STUDY_NAME
        if not store.exists():
            fabricate(home, count, points)
        stores[count] = store
        size = sum(path.stat().st_size for path in store.rglob("*.zip"))
        yield f"{count:,} runs: {size / 1e6:.0f} MB of archives"
    found: dict[str, list[Cost | None]] = {}
    for count, store in stores.items():
        for name, command in commands(store, python, lacks, is_whole=points is None).items():
            is_asked = any(word in name for word in only.split(","))
            if name != START and not is_asked:
                continue
            cost = measure(command, limit)
            found.setdefault(name, []).append(cost)
            yield f"{name}, {count:,} runs: {_shown(cost)}"
    start = min(cost.seconds for cost in found[START] if cost)
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
    python: Annotated[str, typer.Option(help="An interpreter with rivals.")] = sys.executable,
    only: Annotated[str, typer.Option(help="Parts of names of commands, with commas.")] = "",
) -> None:  # fmt: skip
    """Print the cost of each command at each size, and its slope."""
    with tempfile.TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        for line in growth(where, runs or [1000, 10000], points, limit, python, only):
            echo(line)


if __name__ == "__main__":
    run_command(main)
