"""Runs trained one after another in several processes that share a device.

The processes wait for each other before and after every round, so a round lasts as long as the
slowest process.
"""

import multiprocessing
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from typing import Any

import torch
from device_clock import device_seconds
from fuse import Shape, pack_members, random_corpus, sequential_epochs

TIMEOUT = 600
"""Seconds after which a process is given up."""


def shared_device_seconds(
    shape: Shape, steps: int, device: torch.device, processes: int, rounds: int
) -> list[float]:
    """Return the seconds of an epoch of all members, split over so many processes, per round."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    share = replace(shape, P=shape.P // processes)
    assert share.P * processes == shape.P
    workers = [
        context.Process(target=_work, args=(share, steps, device, rounds, barrier, results, i))
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    seconds = results.get(timeout=TIMEOUT)
    for worker in workers:
        worker.join(TIMEOUT)
    return seconds


def _work(
    shape: Shape, steps: int, device: torch.device, rounds: int,
    barrier: Barrier, results: Any, rank: int,
) -> None:  # fmt: skip
    torch.set_num_threads(1)
    corpus = random_corpus(shape, steps)
    epoch = sequential_epochs(pack_members(shape, corpus, device), corpus)
    seconds = []
    epoch()

    def round_of_all() -> None:
        epoch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        barrier.wait(TIMEOUT)

    for _ in range(rounds):
        barrier.wait(TIMEOUT)
        seconds.append(device_seconds(round_of_all, device))
    if rank == 0:
        results.put(seconds)
