"""Time work on a device: with CUDA events on a GPU, with the wall clock on a CPU.

A GPU runs asynchronously. So a measurement begins when the device is idle and ends when the device
has finished; the host's time to launch operations is included.
"""

import time

import torch
from measure import Work


def device_seconds(work: Work, device: torch.device, repeats: int = 1) -> float:
    """Return the seconds of one call, averaged over `repeats` consecutive calls."""
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
