"""Packing: which runs a worker may train together as a pack, and how many.

The members of a pack stay separate runs: each has its own folder, curve and records, and each ends
by itself. Whether the packed or the single trainer is used depends on a run's model, its recipe and
the kind of device only, not on the other runs.

The maximum number of members on a GPU follows from its memory:

    members ≤ MEMORY_SHARE · memory / (16 N + activations)

with N parameters in four float32 copies (weights, gradients, two moments of Adam), and the tensors
that autograd saves for one batch (`lmzoo/train/packed/memory.py`).
"""

import contextlib
import json
import threading
from collections.abc import Sequence
from typing import Any

from lmzoo import zoo
from lmzoo.config import from_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.store.records import Record
from lmzoo.study.planned_run import PlannedRun
from lmzoo.train.packed.compatibility import pack_key, packing_pays, reason_not_packable
from lmzoo.train.packed.memory import member_bytes
from lmzoo.train.recipe import Recipe
from lmzoo.train.run_config import known_model_facts, model_facts

CPU_PACK_SIZE = 16
"""Maximum number of pack members on a CPU with `--fuse auto`; larger packs gain little."""
GPU_PACK_SIZE = 256
"""The same on a GPU; its memory may allow fewer."""
SHARED_ESTIMATE = 256
"""Maximum number of runs of a closed-form model that one worker takes (`closed_form.py`)."""
MEMORY_SHARE = 0.5
"""Fraction of a GPU's memory that a pack may use by the estimate."""


def parse_fuse(text: str) -> int | None:
    """Return the maximum number of pack members: `auto` (None), `off` (0) or a number.

    Raises:
        UserError: The text is none of these.
    """
    if text in ("auto", "off"):
        return None if text == "auto" else 0
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--fuse {text!r} is not auto, off or a number of pack members such as 8")
    return int(text)


class Packer:
    """Decides about packs of at most `size` members.

    0 trains each run with the single trainer. None packs the models that gain from it.
    """

    def __init__(self, corpus: Corpus, size: int | None) -> None:
        self.corpus, self.size = corpus, size
        self._apart: dict[str, str] = {}
        """Run identity -> the group that shares no pack with other runs."""
        self._keys: dict[str, str] = {}
        self._shapes = _Shapes(corpus)

    def keep_apart(self, runs: Sequence[PlannedRun]) -> str:
        """Train these runs without any others until `join`; return their pack key."""
        for run in runs:
            self._apart[run.id] = runs[0].id
        return self.pack_key(runs[0])

    def is_apart(self, run: PlannedRun) -> bool:
        """Return whether the run shares no pack with runs outside its group."""
        return run.id in self._apart

    def join(self, run: PlannedRun) -> None:
        """Let a run share packs with all others again."""
        self._apart.pop(run.id, None)

    def pack_key(self, run: PlannedRun) -> str:
        """Return a key that is equal for runs that may share a pack."""
        group = self._apart.get(run.id)
        return f"{self._shape_key(run)} {group}" if group else self._shape_key(run)

    def _shape_key(self, run: PlannedRun) -> str:
        configs = json.dumps([run.config["model"], run.config["recipe"]])
        if configs not in self._keys:
            self._keys[configs] = pack_key(*_model_and_recipe(run))
        return self._keys[configs]

    def is_packed(self, run: PlannedRun, memory: int = 0) -> bool:
        """Return whether the packed trainer trains the run, even if it is the only member.

        `memory` is the memory of the worker's GPU in bytes; 0 is a CPU.
        """
        if self.size == 0:
            return False
        shape = self._shapes.get(self._shape_key(run), run)
        return shape.packable and (shape.pays_on_cpu or memory > 0 or self.size is not None)

    def shares_estimate(self, run: PlannedRun) -> bool:
        """Return whether runs with the key of this one load the same closed-form estimate."""
        return MODELS[run.config["model"]["name"]].closed_form

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
        needed = self._shapes.get(self._shape_key(run), run).member_bytes()
        most = max(1, min(GPU_PACK_SIZE, int(MEMORY_SHARE * memory / needed)))
        return 1 << (most.bit_length() - 1)  # the rows of a pack are a power of two

    def prepare(self, runs: list[PlannedRun], stopped: threading.Event) -> None:
        """Compute and cache, for runs in order of priority, what their start needs."""
        for run in runs:
            if stopped.is_set():
                return
            with contextlib.suppress(Exception):  # the run fails on a worker, and says why
                self.is_packed(run)
                model_facts(run.config, self.corpus.task)

    def config(self, run: PlannedRun) -> Record:
        """Return the run's config, with the facts about its model if they are cached."""
        return {**run.config, **known_model_facts(run.config, self.corpus.task)}


class _Shape:
    """What is known of the runs of one pack key."""

    def __init__(self, run: PlannedRun, corpus: Corpus) -> None:
        self._task = corpus.task
        self._model, self._recipe = _model_and_recipe(run)
        self.pays_on_cpu = self.packable = False
        self._bytes = 0
        with contextlib.suppress(Exception):  # the run fails on a worker, and says why
            self.pays_on_cpu = packing_pays(self._model, self._recipe, corpus.task)
            if not self._recipe.carry_state:  # each member would need the state of its own blocks
                self.packable = not reason_not_packable(zoo.build(self._model, corpus.task))

    def member_bytes(self) -> int:
        """Return the memory of one pack member; computed at the first call."""
        if not self._bytes:
            self._bytes = member_bytes(zoo.build(self._model, self._task), self._recipe.batch)
        return self._bytes


class _Shapes:
    """Computes each shape once, also if two threads ask for it."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus, self._lock = corpus, threading.Lock()
        self._known: dict[str, _Shape] = {}

    def get(self, key: str, run: PlannedRun) -> _Shape:
        with self._lock:
            if key not in self._known:
                self._known[key] = _Shape(run, self._corpus)
            return self._known[key]


def _model_and_recipe(run: PlannedRun) -> tuple[Any, Recipe]:
    return MODELS.parse(run.config["model"]), from_dict(Recipe, run.config["recipe"])
