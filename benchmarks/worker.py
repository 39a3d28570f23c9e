"""What a worker does besides training: 256 runs with the files of a pack, and with those of each.

    python benchmarks/worker.py [--runs 256] [--epochs 8]

Training and evaluation are replaced; all else is the worker's own: checkpoints, records, curves.
Both ways run in one process, interleaved by epoch; the other way writes the files of each run,
as a worker does for runs that train alone. Seconds are the CPU time of all threads. Curves are
written once a second, which is more often than in a sweep.
"""

import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import torch
import typer
from fuse import Shape, random_corpus
from measure import Ratio, cpu_seconds, save, speedup, time_ratio

from lmzoo import zoo
from lmzoo.base.command_line import run_command
from lmzoo.data.corpus import Corpus
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import Record
from lmzoo.lab.sweep.messages import Assignment, Job
from lmzoo.lab.sweep.worker import pack as module
from lmzoo.lab.sweep.worker.pack import Pack
from lmzoo.train.evaluate import compute_losses
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_trainer import PackedTrainer
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import run_config
from lmzoo.train.trainer import Training, epoch_record
from lmzoo.trainables.trainer import Trainer

SHAPE = Shape(256, 251, 32, 0, 100, 20, steps=1)
GOAL = 0.0002
"""Seconds of a run and epoch, curves and checkpoint included."""
MOST = 20
"""Threads, and open files."""


def main(
    runs: Annotated[int, typer.Option(min=2)] = SHAPE.P,
    epochs: Annotated[int, typer.Option(min=3)] = 8,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/worker.json"),
) -> None:
    """Measure a worker on one thread."""
    torch.set_num_threads(1)
    corpus = random_corpus(SHAPE, 1)
    configs = [_config(corpus, seed) for seed in range(runs)]
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(KeptTrainers, "train_epoch", _train_epoch))
        patches.enter_context(mock.patch.object(module, "FLUSH_SECONDS", 1.0))
        patches.enter_context(mock.patch.object(Store, "save_seconds", 0.0))
        save(measure(configs, corpus, epochs, f"{runs} runs, saved every epoch"), out)


def measure(configs: list[dict], corpus: Corpus, epochs: int, at: str) -> list[Ratio]:
    """Return all rows."""
    with tempfile.TemporaryDirectory() as together, tempfile.TemporaryDirectory() as each:
        before = len([*Path("/proc/self/fd").iterdir()]), threading.active_count()
        ours, theirs = (Worker(Path(p), configs, corpus) for p in (together, each))
        opened = ours.timed(ours.open), theirs.timed(theirs.open)
        seconds: list[list[float]] = [[], []]
        for epoch in range(epochs):
            for worker, packed, own in ((ours, True, seconds[0]), (theirs, False, seconds[1])):
                duration = worker.timed(lambda w=worker, p=packed: w.epoch(packed=p))
                if epoch > 1:
                    own.append(duration)
        files = len([*Path("/proc/self/fd").iterdir()]) - before[0]
        threads = (threading.active_count() - before[1]) // 2
        closed = [worker.timed(worker.pack.suspend) for worker in (ours, theirs)]
        for worker in (ours, theirs):
            worker.pack.writer.close()
    what, rival = "a worker's part of a run and epoch", "files of each run"
    mine, others = seconds
    return [
        time_ratio(what, at, "its goal", mine, [GOAL] * len(mine), 1.0),
        speedup(what, at, rival, mine, others),
        speedup("opening a run", at, rival, *([x] for x in opened)),
        speedup("closing a run that goes on", at, rival, *([x] for x in closed)),
        Ratio(
            what="threads and open files", at=at, rival=f"{MOST}", unit="number, ours / rival",
            median=max(threads, files) / MOST, low=min(threads, files) / MOST,
            high=max(threads, files) / MOST, goal="< 1", holds=max(threads, files) < MOST,
            absolute=f"{threads} threads, {files} files",
        ),
    ]  # fmt: skip


class Worker:
    """A worker whose runs train in one pack."""

    def __init__(self, folder: Path, configs: list[dict], corpus: Corpus) -> None:
        self._configs, trainer = configs, Trainer(corpus, torch.device("cpu"))
        self.pack = Pack(Store(folder), trainer, lambda run: None, "benchmark")

    def open(self) -> None:
        """Open all runs."""
        jobs = [Job(config, 10**6, 0, is_new=True) for config in self._configs]
        self.pack.apply(Assignment(join=jobs))

    def epoch(self, *, packed: bool) -> None:
        """Train a pack; write the files of the pack, or those of each run."""
        runs = [*self.pack._open.values()]
        trained = self.pack._train(runs, packed=True)
        for run in trained:
            run.save_epoch(packed=packed)
        if packed:
            self.pack._save_pack(trained)
        self.pack._write_curves()

    def timed(self, work: Callable[[], Any]) -> float:
        """Return the seconds of a run, its writes included."""

        def run() -> None:
            work()
            self.pack.writer.wait()

        return cpu_seconds(run) / len(self._configs)


def _config(corpus: Corpus, seed: int) -> dict[str, Any]:
    model = zoo.config("DLM46", width=SHAPE.E, emission="vector")
    config = run_config(model, Recipe(batch=SHAPE.B), corpus, {"name": "random"}, seed)
    point = {"label": "wild type", "id": "0"}
    return {**config, "point": point, "stage": "tune", "setting": {"recipe.lr": 1e-3}}


def _train_epoch(kept: KeptTrainers, trainings: list[Training], corpus: Corpus) -> list[Record]:
    """Train nothing: a loss that falls in every second epoch, of weights that stay."""
    if trainings[0].row is None:
        trainer = PackedTrainer(trainings)
        trainer.train_epoch(corpus.train)
        trainer.write_back()
    nll = torch.ones(len(corpus.valid), dtype=torch.float64)
    losses = compute_losses(nll * (40 - trainings[0].epoch // 2), corpus.valid.counts)
    for training in trainings:
        training.epoch += 1
        training.add_record(epoch_record(training, 2.0, losses, 1.0, 1000))
    return [training.record for training in trainings]


if __name__ == "__main__":
    run_command(main)
