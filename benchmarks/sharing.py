"""Members one after another in several processes that share a device.

The processes meet before and after every round, so that a round lasts as long as the slowest.
"""

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from typing import Any

import torch
from device_clock import seconds_of
from fuse import Shape, random_corpus

from lmzoo import zoo
from lmzoo.data.corpus import Corpus
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

PATIENCE = 600
"""Seconds after which a process that has not come is given up."""


def members(shape: Shape, corpus: Corpus, device: torch.device) -> list[Training]:
    """Members of DLM46 that differ in their seed."""
    config = zoo.config("DLM46", width=shape.E, emission={"components": shape.K})
    recipe = Recipe(batch=shape.B, lr=1e-3)
    return [
        Training(zoo.build(config, corpus.task, i).to(device), recipe, i) for i in range(shape.P)
    ]


def one_by_one(trainings: list[Training], corpus: Corpus) -> Callable[[], object]:
    """An epoch of each member, one after another."""
    return lambda: [next(fit(one, corpus, one.epoch + 1)) for one in trainings]


def shared(
    shape: Shape, steps: int, device: torch.device, processes: int, rounds: int
) -> list[float]:
    """Seconds of an epoch of all members, shared out over so many processes, in each round."""
    context = multiprocessing.get_context("spawn")
    meet, told = context.Barrier(processes), context.Queue()
    own = replace(shape, P=shape.P // processes)
    assert own.P * processes == shape.P
    started = [
        context.Process(target=_work, args=(own, steps, device, rounds, meet, told, i))
        for i in range(processes)
    ]
    for process in started:
        process.start()
    seconds = told.get(timeout=PATIENCE)
    for process in started:
        process.join(PATIENCE)
    return seconds


def _work(
    shape: Shape, steps: int, device: torch.device, rounds: int, meet: Barrier, told: Any, rank: int
) -> None:
    torch.set_num_threads(1)
    corpus = random_corpus(shape, steps)
    epoch, seconds = one_by_one(members(shape, corpus, device), corpus), []
    epoch()

    def together() -> None:
        epoch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        meet.wait(PATIENCE)

    for _ in range(rounds):
        meet.wait(PATIENCE)
        seconds.append(seconds_of(together, device))
    if rank == 0:
        told.put(seconds)
