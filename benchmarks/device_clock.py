"""Timing in turn on a device: a GPU's own clock there, the wall clock on a CPU.

A GPU works behind the host's back, so a piece of work begins on an idle device and ends when
the device has ended it; what the host takes to start operations is in it.
"""

import time
from collections.abc import Callable, Mapping

import torch

Work = Callable[[], object]


def in_turn(
    contenders: Mapping[str, Work],
    rounds: int,
    device: torch.device,
    *,
    times: int = 1,
    warm: int = 2,
) -> dict[str, list[float]]:
    """Seconds of one piece of each contender's work, `times` of which make a round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds + warm):
        for name, work in contenders.items():
            took = seconds_of(work, device, times)
            if i >= warm:
                seconds[name].append(took)
    return seconds


def seconds_of(work: Work, device: torch.device, times: int = 1) -> float:
    """Seconds that a piece of work takes, of so many done on end."""
    if device.type != "cuda":
        begin = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - begin) / times
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1000 / times
