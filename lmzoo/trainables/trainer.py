"""How a worker trains the runs that it has open, whatever they train.

`Shapes` says which runs may share a pack, and the facts about their models. Those of programs share
none. On a GPU members ≤ MEMORY_SHARE · memory / bytes of one (`lmzoo/train/pack_compatibility.py`).
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.kernels.device import CPU, granted_gpu
from lmzoo.kernels.guest import use_threads
from lmzoo.lab.store.pack_files import Buffer
from lmzoo.lab.store.records import PROGRAM, Record, RunFolder
from lmzoo.lab.store.saved_run import SavedRun
from lmzoo.lab.store.writer import Writer
from lmzoo.lab.study.commands import CommandRun
from lmzoo.lab.study.trainable import Config
from lmzoo.train.checkpoint import stacked_state
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_compatibility import member_bytes, pack_key, packing_pays, reason_not_packable
from lmzoo.train.recipe import Recipe, stored_recipe
from lmzoo.train.run import Run, model_facts
from lmzoo.train.trainer import Training
from lmzoo.trainables.functions import FunctionRun


class Trainer:
    """Opens runs, and trains those of rows of the zoo in packs."""

    def __init__(self, corpus: Corpus | None, device: torch.device, memory: int = 0):
        """`memory` is that of the worker's share of a GPU in bytes; 0: the CPU."""
        self._corpus = corpus
        self._device = device
        self.memory = memory
        self._kept = KeptTrainers()
        self._fits: dict[str, int] = {}
        """Key of packs that exceeded the GPU's memory -> members that fit, as far as is known."""

    def with_facts(self, config: Config) -> Config:
        """Return the config of a run with the facts about its model."""
        if self._corpus is None or "parameters" in config:
            return config
        return dict(config) | model_facts(config, self._corpus.task)

    def open(
        self, folder: RunFolder, config: Config, *, new: bool, writer: Writer | None
    ) -> SavedRun:
        """Return a run of this process in its folder; see `SavedRun`."""
        # The fleet holds the lock of the store, so that runs take none.
        if config.get(PROGRAM) == "command":
            return CommandRun(folder, config, lock=False, new=new, writer=writer)
        if PROGRAM in config:
            return FunctionRun(folder, config, lock=False, new=new, writer=writer)
        assert self._corpus is not None
        return Run(
            folder,
            config,
            self._corpus,
            device=self._device,
            lock=False,
            new=new,
            writer=writer,
        )

    def train_packed(self, runs: Sequence[SavedRun]):
        """Train one epoch of runs of rows of the zoo as one program.

        A pack that exceeds the GPU's memory is divided, at once in later epochs; one run cannot be.
        """
        assert self._corpus is not None
        trainings = [run.training for run in runs]
        key = pack_key(trainings[0].model.config, trainings[0].recipe)
        # A pack that was too large once is too large in each epoch.
        size = self._fits.get(key, len(runs))
        if len(runs) <= size:
            if self._train_epoch(trainings):
                return
            size = self._fits[key] = len(runs) // 2
        for begin in range(0, len(runs), size):
            self.train_packed(runs[begin : begin + size])

    def _train_epoch(self, trainings: list[Training]) -> bool:
        """Train one epoch of a pack; return False if it exceeds the GPU's memory."""
        assert self._corpus is not None
        try:
            self._kept.train_epoch(trainings, self._corpus)
        except torch.OutOfMemoryError:
            # It cannot be divided.
            if len(trainings) == 1:
                raise
            self._kept.free(trainings)
            return False  # the error, whose traceback keeps tensors of the pack, is gone then
        return True

    def packed_state(
        self, runs: Sequence[SavedRun], records: Sequence[Sequence[Record]]
    ) -> Callable[[int], Sequence[Buffer]]:
        """Return a function that makes the file of the state of runs after an epoch in a pack.

        `records` are those of each run that may not be on disk. A thread may call it later.
        """
        members = [
            (run.identity, run.training, new) for run, new in zip(runs, records, strict=True)
        ]
        return stacked_state(members)

    def test_packed(self, runs: Sequence[SavedRun]):
        """Compute the test losses of a pack, if its program is kept, for `Run.test`."""
        if not runs:
            return
        assert self._corpus is not None
        losses = self._kept.test_losses([run.training for run in runs], self._corpus)
        for run, found in zip(runs, losses, strict=False):
            cast(Run, run).known_losses = found

    def is_final(self, error: Exception) -> bool:
        """Return whether another worker, or another attempt, would meet the error, too."""
        if isinstance(error, OSError | MemoryError | UserError | torch.OutOfMemoryError):
            return False
        return self._device.type == "cpu"  # a GPU may be broken


def make_trainer(corpus: Corpus | None, threads: int, gpu: float) -> Trainer:
    """Return the trainer of a worker with a share of a GPU; 0: the CPU."""
    torch.set_num_threads(threads)  # for functions of the user
    use_threads(threads)
    device = CPU
    memory = 0
    if gpu:
        # Several GPUs for one worker are no larger one.
        share = min(gpu, 1.0)
        device = granted_gpu(os.uname().nodename, share)
        memory = int(share * torch.cuda.get_device_properties(device).total_memory)
    if corpus is not None:
        corpus = corpus.to(device)
    return Trainer(corpus, device, memory)


def is_counted(config: Config) -> bool:
    """Return whether a run is of a count model: runs with its key load the same estimate."""
    if PROGRAM in config:
        return False
    return MODELS[config["model"]["name"]].closed_form


class Shape:
    """What is known of the runs of one pack key."""

    def __init__(self, config: Config, corpus: Corpus | None):
        self.pays_on_cpu = False
        self.packable = False
        self._bytes = 0
        if corpus is None or PROGRAM in config:
            return
        self._task = corpus.task
        self._model, self._recipe = _model_and_recipe(config)
        with contextlib.suppress(Exception):  # the run fails on a worker, and says why
            self.pays_on_cpu = packing_pays(self._model, self._recipe, corpus.task)
            self.packable = not reason_not_packable(zoo.build(self._model, corpus.task))

    def member_bytes(self) -> int:
        """Return the memory of one pack member; computed at the first call."""
        if not self._bytes:
            self._bytes = member_bytes(zoo.build(self._model, self._task), self._recipe.batch)
        return self._bytes


class Shapes:
    """The shapes of runs; each is computed once, also if two threads ask for it."""

    def __init__(self, corpus: Corpus | None):
        """`corpus` is None if no run trains a row of the zoo."""
        self._corpus = corpus
        self._lock = threading.Lock()
        self._known: dict[str, Shape] = {}
        self._keys: dict[str, str] = {}

    def key(self, config: Config) -> str:
        """Return a key that is equal for runs that may share a pack."""
        if PROGRAM in config:
            # Runs of a program share no pack, but times of their epochs are alike.
            return f"{config[PROGRAM]} {config['point']['id']}"
        # To parse a config takes long, and a sweep asks often.
        configs = json.dumps([config["model"], config["recipe"]])
        if configs not in self._keys:
            model, recipe = _model_and_recipe(config)
            self._keys[configs] = pack_key(model, recipe)
        return self._keys[configs]

    def get(self, config: Config) -> Shape:
        """Return the shape of a run."""
        key = self.key(config)
        with self._lock:
            if key not in self._known:
                self._known[key] = Shape(config, self._corpus)
            return self._known[key]

    def facts(self, config: Config, *, known: bool = False) -> Config:
        """Return the facts about the run's model; with `known` {} if they are not computed."""
        if self._corpus is None or PROGRAM in config:
            return {}
        return model_facts(config, self._corpus.task, known=known)


def _model_and_recipe(config: Config) -> tuple[Any, Recipe]:
    return MODELS.parse(config["model"]), stored_recipe(config["recipe"])
