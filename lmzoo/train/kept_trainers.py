"""Train packs epoch by epoch, and keep their trainers, whose steps are recorded.

To record the steps of a pack takes as long as some epochs of a small one, so a trainer is kept:

- Where a device has a recorder of its own (CUDA graphs), a trainer serves one pack after another of
  the same structure. It has a power of two of rows; those without a member are idle. A pack moves
  to fewer rows when a quarter of them or fewer are in use.
- Elsewhere a trainer serves its members only, and is freed with the first of them.
"""

import math
import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from lmzoo.data.corpus import Corpus
from lmzoo.kernels.device import device_of, device_scope
from lmzoo.kernels.guest import guest
from lmzoo.lab.store.records import Record
from lmzoo.train import stepper
from lmzoo.train.evaluate import Losses
from lmzoo.train.pack_compatibility import pack_key
from lmzoo.train.pack_recorder import retain_freed_memory
from lmzoo.train.pack_trainer import PackedTrainer
from lmzoo.train.trainer import Training, Trainings, epoch_record

ROWS_PER_MEMBER = 4
"""A kept trainer serves a pack if it has fewer than this many rows for each member."""
MAX_TRAINERS = 8
"""Kept trainers for any members; the one that was used longest ago makes room for a new one."""


class KeptTrainers:
    """Trains packs on one device with trainers that it keeps."""

    def __init__(self):
        self._shared: dict[tuple[Any, int], PackedTrainer] = {}
        """(what the steps depend on, rows) -> trainer for any members; the last was used last."""
        self._own: weakref.WeakKeyDictionary[Training, PackedTrainer] = weakref.WeakKeyDictionary()
        """First member -> the trainer of its pack."""

    def fit(self, trainings: Trainings, corpus: Corpus, epochs: int) -> Iterator[list[Training]]:
        """Train all members until each has done `epochs` epochs in total or has diverged.

        Members may start at different epochs. After each epoch, the trainings that took part are
        yielded; each has a new `record`.
        """
        while True:
            active = [t for t in trainings if t.epoch < epochs and not t.diverged]
            if not active:
                return
            self.train_epoch(active, corpus)
            yield active

    def train_epoch(self, trainings: Trainings, corpus: Corpus) -> list[Record]:
        """Train members of equal pack keys for one epoch and return its records.

        None of the members may have diverged.
        """
        first = trainings[0]
        keys = {pack_key(t.model.config, t.recipe) for t in trainings}
        assert len(keys) == 1, f"the pack members have {len(keys)} different pack keys"
        if corpus.valid.scored is not None:
            first.model.require_next_token()
        retain_freed_memory()
        start = time.perf_counter()
        with guest(first.model, first.recipe.precision):
            with device_scope(first.model):  # only here: it slows every torch call
                trainer = self._get(trainings)
            means = trainer.train_epoch(corpus.train)
            seconds = (time.perf_counter() - start) / len(trainings)
            valid = trainer.evaluate(corpus.valid, corpus)
            trainer.write_back()  # an epoch that ends with an error before changes no training
        tokens = corpus.train.num_scored
        for training, mean, losses in zip(trainings, means, valid, strict=True):
            training.epoch += 1
            finite = None
            if math.isfinite(mean):
                finite = losses
            record = epoch_record(training, mean, finite, seconds, tokens)
            training.add_record(record)
        return [t.record for t in trainings]

    def test_losses(self, trainings: Trainings, corpus: Corpus) -> list[Losses]:
        """Return the losses of members on the test split, each with the weights of its best epoch.

        [] if no kept trainer serves them: then each model is evaluated alone.
        """
        first = trainings[0]
        with guest(first.model, first.recipe.precision):
            trainer = None
            if _may_share(trainings):
                trainer = self._find(trainings)
            if trainer is None:
                return []
            with device_scope(first.model):
                trainer.replace(trainings)
            # Test losses are those of the best epoch, not of the last.
            trainer.stacked.read_best()
            return trainer.evaluate(corpus.test, corpus)

    def free(self, trainings: Trainings | None = None):
        """Free the memory of all trainers, or only of those of packs like this one."""
        if trainings is None:
            self._shared.clear()
            self._own.clear()
            return
        own = _key(trainings)
        for key, rows in list(self._shared):
            if key == own:
                del self._shared[key, rows]
        for training in trainings:
            self._own.pop(training, None)

    def _get(self, trainings: Trainings) -> PackedTrainer:
        """Return a kept trainer for these members, or a new one."""
        if _may_share(trainings):
            trainer = self._find(trainings)
            if trainer is not None:
                if trainer.stacked.belongs_to(trainings):
                    trainer.stacked.read()
                else:
                    trainer.replace(trainings)
                return trainer
            trainer = PackedTrainer(trainings, rows_for(len(trainings)))
            while len(self._shared) >= MAX_TRAINERS:
                oldest = next(iter(self._shared))
                del self._shared[oldest]
            rows = len(trainer.stacked.values)
            self._shared[_key(trainings), rows] = trainer
            return trainer
        known = self._own.get(trainings[0])
        if known is not None and known.stacked.belongs_to(trainings):
            known.stacked.read()
            return known
        trainer = PackedTrainer(trainings)
        for training in trainings:
            self._own.pop(training, None)  # frees the memory of the previous trainer
        # Without recordings a trainer is made anew in no time, and would only hold memory.
        if trainer.stepper.replays:
            self._own[trainings[0]] = trainer
        return trainer

    def _find(self, trainings: Trainings) -> PackedTrainer | None:
        """Return the shared trainer with the fewest rows that are enough; None if there is none."""
        key = _key(trainings)
        count = len(trainings)
        # More rows than that would compute mostly what nobody reads.
        fitting = [
            rows
            for other, rows in self._shared
            if other == key and count <= rows < ROWS_PER_MEMBER * count
        ]
        if not fitting:
            return None
        # Moved to the end: the dictionary is in the order of use.
        name = (key, min(fitting))
        self._shared[name] = self._shared.pop(name)
        return self._shared[name]


def rows_for(count: int) -> int:
    """Return the rows of a new shared trainer for `count` members: a power of two."""
    # Packs of similar sizes then share one recording.
    return 1 << (count - 1).bit_length()


def _may_share(trainings: Trainings) -> bool:
    """Whether a trainer of members like these can serve other members later."""
    recorder = stepper.device_recorder(device_of(trainings[0].model))
    if recorder is None:
        return False
    return recorder.few_shapes


def _key(trainings: Trainings) -> tuple[Any, ...]:
    """Return what the steps of a pack depend on, besides numbers in its memory."""
    first = trainings[0]
    structure = pack_key(first.model.config, first.recipe)
    return structure, first.model.task, torch.get_default_dtype()
