"""Timing in turn: contenders run one after another, round after round, in one process.

A ratio is taken within a round, so that it holds where the machine's speed drifts; what
is reported is its median and its range over the rounds. Seconds are the CPU time of the
process, which other processes on the machine touch least; with one thread it is what a
clock would show on a machine left alone.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One row of a table: a contender beside its rival."""

    what: str
    at: str
    rival: str
    unit: str
    """What ratio is of what."""
    median: float
    low: float
    high: float
    goal: str
    holds: bool | None
    """Whether the median reaches the goal; None where there is none."""
    absolute: str


def in_turn(
    contenders: Mapping[str, Callable[[], object]], rounds: int, warm: int = 1
) -> dict[str, list[float]]:
    """CPU seconds of every contender in every round, the first `warm` rounds left out."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds + warm):
        for name, work in contenders.items():
            begin = time.process_time()
            work()
            if i >= warm:
                seconds[name].append(time.process_time() - begin)
    return seconds


def slower(
    what: str,
    at: str,
    rival: str,
    ours: list[float],
    theirs: list[float],
    goal: float | None = None,
) -> Ratio:
    """Our seconds over the rival's; at most `goal`, if there is one."""
    return _over(what, at, rival, "time, ours / rival", ours, theirs, goal, absolute=_in_ms)


def shrunk(
    what: str, at: str, rival: str, ours: list[float], theirs: list[float], goal: float | None
) -> Ratio:
    """Our megabytes over the rival's; at most `goal`, if there is one."""
    unit = "peak memory, ours / rival"
    return _over(what, at, rival, unit, ours, theirs, goal, absolute=_in_mb)


def faster(
    what: str,
    at: str,
    rival: str,
    ours: list[float],
    theirs: list[float],
    goal: float | None = None,
) -> Ratio:
    """The rival's seconds over ours; at least `goal`, if there is one."""
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    median = statistics.median(ratios)
    return Ratio(
        what=what, at=at, rival=rival, unit="time, rival / ours",
        median=median, low=min(ratios), high=max(ratios),
        goal="" if goal is None else f"≥ {goal:g}",
        holds=None if goal is None else median >= goal,
        absolute=_in_ms(ours, theirs),
    )  # fmt: skip


def _over(
    what: str, at: str, rival: str, unit: str, ours: list[float], theirs: list[float],
    goal: float | None, absolute: Callable[[list[float], list[float]], str],
) -> Ratio:  # fmt: skip
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    median = statistics.median(ratios)
    return Ratio(
        what=what, at=at, rival=rival, unit=unit,
        median=median, low=min(ratios), high=max(ratios),
        goal="" if goal is None else f"≤ {goal:.2f}",
        holds=None if goal is None else median <= goal,
        absolute=absolute(ours, theirs),
    )  # fmt: skip


def _in_ms(ours: list[float], theirs: list[float]) -> str:
    mine, rivals = (statistics.median(side) * 1e3 for side in (ours, theirs))
    digits = 0 if min(mine, rivals) >= 10 else 3
    return f"{mine:.{digits}f} / {rivals:.{digits}f} ms"


def _in_mb(ours: list[float], theirs: list[float]) -> str:
    return f"{statistics.median(ours):.0f} / {statistics.median(theirs):.0f} MB"


def save(rows: list[Ratio], path: Path) -> None:
    """Write the rows as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n")


def table(rows: list[dict]) -> str:
    """Rows as `save` wrote them, as a markdown table."""
    head = "| what | at | rival | ratio | median | range | goal | holds | ours / rival |\n"
    rule = "|---|---|---|---|---:|---|---|---|---|\n"
    marks = {True: "yes", False: "**no**", None: ""}
    return head + rule + "".join(_line(row, marks[row["holds"]]) for row in rows)


def _line(row: dict, mark: str) -> str:
    ratio = f"{row['median']:.2f} | {row['low']:.2f} to {row['high']:.2f}"
    first = f"| {row['what']} | {row['at']} | {row['rival']} | {row['unit']} | {ratio} |"
    return f"{first} {row['goal']} | {mark} | {row['absolute']} |\n"
