"""Packing: which runs one worker trains together as a pack.

A pack is one trial for Ray Tune. Its members stay separate runs: each has its own folder, curve and
records, and each ends by itself. Packing does not wait for runs: it divides the ready runs that may
share a pack evenly over the idle workers. Runs with the same seed are packed first, because their
batches have equal lengths.

A pack that dies is restarted with the same members. After too many deaths each member is trained
alone, so that one faulty run cannot end the others. Whether the packed or the single trainer is
used depends on a run's model and recipe only, not on the other runs.
"""

import json
import math
from typing import Any

from lmzoo import zoo
from lmzoo.config import from_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.errors import UserError
from lmzoo.sweep.planned_run import PlannedRun
from lmzoo.sweep.planner import Planner
from lmzoo.train.packed.compatibility import pack_key, packing_pays, reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.run_config import add_model_facts

DEFAULT_PACK_SIZE = 16
"""Maximum number of pack members with `--fuse auto`; larger packs gain little."""
PREPARED_RUNS = 2 * DEFAULT_PACK_SIZE
"""Runs whose models are built before training starts; one model takes about 0.1 s."""


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
    """Starts the ready runs of a planner in packs of at most `max_members`.

    0 trains each run with the single trainer. None packs only models that gain from it.
    """

    def __init__(self, planner: Planner, corpus: Corpus, *, max_members: int | None) -> None:
        self.planner, self.corpus = planner, corpus
        self.auto = max_members is None
        self.max_members = DEFAULT_PACK_SIZE if max_members is None else max_members
        self._alone: set[str] = set()
        """Runs that must not share a pack."""
        self._pack_keys: dict[str, str] = {}
        self._packable: dict[str, bool] = {}

    def prepare(self) -> None:
        """Compute, and cache, what the start of the first ready runs needs."""
        for run in self.planner.ready()[:PREPARED_RUNS]:
            self.is_packed(run)
            add_model_facts(run.config, self.corpus.task)

    def start_pack(self, idle_workers: int) -> list[PlannedRun]:
        """Start and return the members of the next pack; empty if no run is ready."""
        ready = self.planner.ready()
        if not ready:
            return []
        first = ready[0]
        pack = [first]
        if self.is_packed(first) and first.id not in self._alone:
            key = self._pack_key(first)
            fitting = [r for r in ready if r.id not in self._alone and self._pack_key(r) == key]
            fitting.sort(key=lambda run: run.config["seed"] != first.config["seed"])
            rounds = math.ceil(len(fitting) / (idle_workers * self.max_members))
            pack = fitting[: math.ceil(len(fitting) / (idle_workers * rounds))]
        return [self.planner.start(run) for run in pack]

    def requeue_alone(self, run_id: str) -> None:
        """Mark a run of a dead pack as ready again, to be trained in a pack of its own."""
        self._alone.add(run_id)
        self.planner.requeue(run_id)

    def is_packed(self, run: PlannedRun) -> bool:
        """True if the packed trainer trains the run, even if it is the only member."""
        key = self._pack_key(run) if self.max_members else ""
        if key and key not in self._packable:
            model, recipe = _model_and_recipe(run)
            wanted = packing_pays(model, recipe, self.corpus.task) or not self.auto
            self._packable[key] = wanted and not reason_not_packable(
                zoo.build(model, self.corpus.task)
            )
        return bool(key) and self._packable[key]

    def _pack_key(self, run: PlannedRun) -> str:
        """Return a key that is equal for runs that may share a pack."""
        configs = json.dumps([run.config["model"], run.config["recipe"]])
        if configs not in self._pack_keys:
            self._pack_keys[configs] = pack_key(*_model_and_recipe(run))
        return self._pack_keys[configs]


def _model_and_recipe(run: PlannedRun) -> tuple[Any, Recipe]:
    return MODELS.parse(run.config["model"]), from_dict(Recipe, run.config["recipe"])
