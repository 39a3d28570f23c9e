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
from pathlib import Path

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


def time_ratio(
    what: str,
    at: str,
    rival: str,
    ours: list[float],
    theirs: list[float],
    goal: float | None = None,
) -> Ratio:
    """Return our seconds over the rival's; `goal` is the largest ratio that holds."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    median = statistics.median(ratios)
    return Ratio(
        what=what, at=at, rival=rival, unit="time, ours / rival",
        median=median, low=min(ratios), high=max(ratios),
        goal="" if goal is None else f"≤ {goal:.2f}",
        holds=None if goal is None else median <= goal,
        absolute=_in_ms(ours, theirs),
    )  # fmt: skip


def speedup(
    what: str,
    at: str,
    rival: str,
    ours: list[float],
    theirs: list[float],
    goal: float | None = None,
) -> Ratio:
    """Return the rival's seconds over ours; `goal` is the smallest ratio that holds."""
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    median = statistics.median(ratios)
    return Ratio(
        what=what, at=at, rival=rival, unit="time, rival / ours",
        median=median, low=min(ratios), high=max(ratios),
        goal="" if goal is None else f"≥ {goal:g}",
        holds=None if goal is None else median >= goal,
        absolute=_in_ms(ours, theirs),
    )  # fmt: skip


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
