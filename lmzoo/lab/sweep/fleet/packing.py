"""Packing: which runs a worker may train together as a pack, and how many.

The members of a pack stay separate runs: each has its own folder, curve and records, and each ends
by itself. Whether the packed or the single trainer is used depends on a run's model, its recipe and
the kind of device only, not on the other runs.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

from lmzoo.base.errors import UserError
from lmzoo.lab.store.records import Record
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.trainable import open_door

CPU_PACK_SIZE = 16
"""Maximum number of pack members on a CPU with `--fuse auto`; larger packs gain little."""
GPU_PACK_SIZE = 256
"""The same on a GPU; its memory may allow fewer."""
SHARED_ESTIMATE = 256
"""Maximum number of runs of a closed-form model that one worker takes (`closed_form.py`)."""
MEMORY_SHARE = 0.5
"""Fraction of a GPU's memory that a pack may use by the estimate."""


def parse_fuse(text: str) -> int | None:
    """Return the maximum number of pack members: `auto` (None), `off` (0) or a number."""
    if text == "auto":
        return None
    if text == "off":
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--fuse {text!r} is not auto, off or a number of pack members such as 8")
    return int(text)


class Packer:
    """Decides about packs of at most `size` members.

    0 trains each run with the single trainer. None packs the models that gain from it.
    """

    def __init__(self, corpus: Any, size: int | None):
        """`corpus` is None in a study without rows of the zoo."""
        self.corpus = corpus
        self.size = size
        self._apart = dict[str, str]()
        """Run identity -> the group that shares no pack with other runs."""
        self._shapes = open_door().make_shapes(corpus)

    def keep_apart(self, runs: Sequence[PlannedRun]):
        """Train these runs without any others until `join`."""
        for run in runs:
            self._apart[run.id] = runs[0].id

    def is_apart(self, run: PlannedRun) -> bool:
        """Return whether the run shares no pack with runs outside its group."""
        return run.id in self._apart

    def join(self, run: PlannedRun):
        """Let a run share packs with all others again."""
        self._apart.pop(run.id, None)

    def pack_key(self, run: PlannedRun) -> str:
        """Return a key that is equal for runs that may share a pack."""
        group = self._apart.get(run.id)
        key = self._shapes.key(run.config)
        if group:
            return f"{key} {group}"
        return key

    def is_packed(self, run: PlannedRun, memory: int = 0) -> bool:
        """Return whether the packed trainer trains the run; `memory` of a GPU in bytes, or 0."""
        if self.size == 0:
            return False
        shape = self._shapes.get(run.config)
        if self.size is not None or memory:  # asked for, or on a GPU
            return shape.packable
        return shape.packable and shape.pays_on_cpu

    def shares_estimate(self, run: PlannedRun) -> bool:
        """Return whether runs with the key of this one load the same closed-form estimate."""
        return open_door().is_counted(run.config)

    def max_members(self, run: PlannedRun, memory: int = 0) -> int:
        """Return the maximum number of members of a pack with this run."""
        if self.shares_estimate(run):
            return SHARED_ESTIMATE
        if not self.is_packed(run, memory):
            return 1
        if self.size:
            return self.size
        if not memory:
            return CPU_PACK_SIZE
        needed = self._shapes.get(run.config).member_bytes()
        fitting = int(MEMORY_SHARE * memory / needed)
        most = max(1, min(GPU_PACK_SIZE, fitting))
        return 1 << (most.bit_length() - 1)  # the rows of a pack are a power of two

    def prepare(self, runs: list[PlannedRun], stopped: threading.Event):
        """Compute and cache what the first placement and the start of the runs need."""
        for compute in self.is_packed, lambda run: self._shapes.facts(run.config):
            for run in runs:
                if stopped.is_set():
                    return
                with contextlib.suppress(Exception):  # the run fails on a worker, and says why
                    compute(run)

    def config(self, run: PlannedRun) -> Record:
        """Return the run's config, with the facts about its model if they are cached."""
        facts = self._shapes.facts(run.config, known=True)
        return dict(run.config) | facts
