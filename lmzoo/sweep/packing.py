"""Which runs a trial trains as one program: a pack.

A pack is one trial for Tune and many runs for everybody else: each has its own folder,
curves and records, is judged by itself and leaves when it ends. Nobody waits for a pack
to fill: whatever is ready and fits goes together, shared out evenly over the places that
are idle. Members of one seed come first, as their batches are equally long. A
pack that dies is started again as it was; what it died with for good is tried alone, each
run by itself, so that one can spoil nobody.

Whether a run is fused at all depends on its model and size only, never on the company.
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
from lmzoo.train.packed.shapes import packing_pays, reason_not_packable, shape
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import add_model_facts

AUTO = 16
"""Members of a pack, at most, where nobody says otherwise; more gain little."""
FIRST = 2 * AUTO
"""Runs that are looked at before any begins: each model takes a tenth of a second."""


def read_fuse(text: str) -> int | None:
    """Members of a pack at most: `auto` (None), `off` (0) or a number.

    Raises:
        UserError: it is none of these.
    """
    if text in ("auto", "off"):
        return None if text == "auto" else 0
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--fuse {text!r} is not auto, off or a number of members such as 8")
    return int(text)


class Packer:
    """Takes packs out of an agenda."""

    def __init__(self, agenda: Planner, corpus: Corpus, *, most: int | None) -> None:
        self.agenda, self.corpus = agenda, corpus
        self.auto, self.most = most is None, AUTO if most is None else most
        self._alone: set[str] = set()
        self._shapes: dict[str, str] = {}
        self._fusible: dict[str, bool] = {}

    def prepare(self) -> None:
        """Find out what will be asked of the runs that come first; of hundreds, as they come."""
        for job in self.agenda.ready()[:FIRST]:
            self.fused(job)
            add_model_facts(job.config, self.corpus.task)

    def next(self, idle: int) -> list[PlannedRun]:
        """Jobs to train together now, so many places being idle; none while all wait for others."""
        ready = self.agenda.ready()
        if not ready:
            return []
        first = ready[0]
        pack = [first]
        if self.fused(first) and first.run not in self._alone:
            kind = self._shape(first)
            fitting = [j for j in ready if j.run not in self._alone and self._shape(j) == kind]
            fitting.sort(key=lambda job: job.config["seed"] != first.config["seed"])
            rounds = math.ceil(len(fitting) / (idle * self.most))
            pack = fitting[: math.ceil(len(fitting) / (idle * rounds))]
        return [self.agenda.issue(job) for job in pack]

    def again(self, run: str) -> None:
        """The run's pack has died with it: it is ready once more, for a trial of its own."""
        self._alone.add(run)
        self.agenda.again(run)

    def fused(self, job: PlannedRun) -> bool:
        """Whether the job is trained by the fused program, in company or not."""
        kind = self._shape(job) if self.most else ""
        if kind and kind not in self._fusible:
            model, recipe = _parts(job)
            small = packing_pays(model, recipe, self.corpus.task) or not self.auto
            self._fusible[kind] = small and not reason_not_packable(
                zoo.build(model, self.corpus.task)
            )
        return bool(kind) and self._fusible[kind]

    def _shape(self, job: PlannedRun) -> str:
        parts = json.dumps([job.config["model"], job.config["recipe"]])
        if parts not in self._shapes:
            self._shapes[parts] = shape(*_parts(job))
        return self._shapes[parts]


def _parts(job: PlannedRun) -> tuple[Any, Recipe]:
    return MODELS.read(job.config["model"]), from_dict(Recipe, job.config["recipe"])
