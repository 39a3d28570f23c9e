"""Interleaved A/B runs: contenders run one after another, round after round, in one process.

A ratio is computed within a round, so slow changes of the machine's speed cancel. The table has its
median and its range over the rounds. Seconds are the CPU time of the process, which other processes
affect least; with one thread it equals wall time on an idle machine.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import typer

Work = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One row of a table: a contender and its rival."""

    what: str
    at: str
    """Sizes, and other conditions."""
    rival: str
    unit: str
    """The two quantities of the ratio."""
    median: float
    low: float
    high: float
    goal: str
    holds: bool | None
    """Whether the median reaches the goal; None without a goal."""
    absolute: str


def cpu_seconds(work: Work) -> float:
    """Return the CPU time of one call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def interleave(
    contenders: Mapping[str, Work],
    rounds: int,
    *,
    warmup: int = 1,
    timer: Callable[[Work], float] = cpu_seconds,
) -> dict[str, list[float]]:
    """Return the seconds of every contender in every round after the warm-up rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds + warmup):
        for name, work in contenders.items():
            duration = timer(work)
            if i >= warmup:
                seconds[name].append(duration)
    return seconds


def device_seconds(work: Work, device: torch.device, repeats: int = 1) -> float:
    """Return the seconds of one call, averaged over `repeats` consecutive calls.

    A GPU runs asynchronously. So a measurement begins when the device is idle and ends when it has
    finished; the host's time to launch operations is included.
    """
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        return (time.perf_counter() - start) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1000 / repeats


def time_ratio(
    what: str, at: str, rival: str, ours: list[float], theirs: list[float],
    goal: float | None = None, *, faster: bool = False,
) -> Ratio:  # fmt: skip
    """Return our seconds over the rival's; `goal` is the largest ratio that holds.

    With `faster`, return the rival's over ours; `goal` is the smallest ratio that holds.
    """
    ratios = [b / a if faster else a / b for a, b in zip(ours, theirs, strict=True)]
    median = statistics.median(ratios)
    limit = f"≥ {goal:g}" if faster and goal else f"≤ {goal:.2f}" if goal else ""
    return Ratio(
        what=what, at=at, rival=rival, unit=f"time, {'rival / ours' if faster else 'ours / rival'}",
        median=median, low=min(ratios), high=max(ratios), goal=limit,
        holds=None if goal is None else median >= goal if faster else median <= goal,
        absolute=_in_ms(ours, theirs),
    )  # fmt: skip


speedup = partial(time_ratio, faster=True)


def _in_ms(ours: list[float], theirs: list[float]) -> str:
    mine, rivals = (statistics.median(side) * 1e3 for side in (ours, theirs))
    digits = 0 if min(mine, rivals) >= 10 else 3
    return f"{mine:.{digits}f} / {rivals:.{digits}f} ms"


def save(rows: list[Ratio], path: Path) -> None:
    """Write the rows as JSON, and print them as a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [asdict(row) for row in rows]
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    typer.echo(table(values))


def table(rows: list[dict]) -> str:
    """Return rows, as in the JSON of `save`, as a Markdown table."""
    head = "| what | at | rival | ratio | median | range | goal | holds | ours / rival |\n"
    rule = "|---|---|---|---|---:|---|---|---|---|\n"
    marks = {True: "yes", False: "**no**", None: ""}
    return head + rule + "".join(_line(row, marks[row["holds"]]) for row in rows)


def _line(row: dict, mark: str) -> str:
    ratio = f"{row['median']:.2f} | {row['low']:.2f} to {row['high']:.2f}"
    first = f"| {row['what']} | {row['at']} | {row['rival']} | {row['unit']} | {ratio} |"
    return f"{first} {row['goal']} | {mark} | {row['absolute']} |\n"
