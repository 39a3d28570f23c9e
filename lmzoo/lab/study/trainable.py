"""What a study can train, as the study machine sees it: the door, and a point behind it.

The machine plans, schedules, stores and judges runs; it knows no model. It uses these functions of
the module `DOOR`; a package with other trainables needs no more.

    check_settings(study, settings)         refuses settings for all points that change what the
                                            points are about
    open_data(study, data_dir)              its data: `fields`, the config of the corpus; `corpus`;
                                            `lines`, what reading a text gave and lost; `source`, a
                                            line; fields and corpus are None if no point needs them
    select_labels(study, corpus, text)      the labels in `LABEL,LABEL` and those of the baselines
    resolve(study, corpus, fields, needed)  a `Trainable` for each point and baseline
    check_points(points)                    what of the models does not learn, or changes nothing
    store_folder(storage, name, fields, fingerprint)    the folder of a study's store
    make_shapes(corpus)                     which runs may share a pack: `key`, `get`; and the facts
                                            about their models: `facts`
    is_counted(config)                      whether runs with the key of this one load one estimate
    make_trainer(corpus, threads, gpu)      the trainer of a worker, which opens a `SavedRun` of a
                                            run: `memory`, `with_facts`, `open`, `train_packed`,
                                            `packed_state`, `test_packed`, `is_final`
    row_name(name)                          the whole name of a row

`lmzoo/trainables/` has the kinds of a `Trainable`: a row of the zoo, a Python function, a command.
The planner, the fleet and the tables know no other interface.
"""

import functools
import shlex
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from lmzoo.base.errors import UserError, near
from lmzoo.base.search_space import Range
from lmzoo.lab.store.user_code import UserCode
from lmzoo.lab.study.study import Setting, Settings, Study

DOOR = "lmzoo.trainables.door"
"""The rows of the zoo, Python functions and commands; its functions say what they take."""
Config = Mapping[str, Any]
"""The config of a run, of a model or of a corpus, or facts about it: plain data by name."""


@functools.cache
def open_door() -> Any:
    """Return the door; the first call imports torch."""
    # Late, because most commands need no torch.
    return import_module(DOOR)


@dataclass
class Trainable(ABC):
    """A point with what it trains and what it searches."""

    id: str
    label: str
    search_space: dict[str, Range]
    epochs: int
    """Epochs of the study."""
    aliases: list[str] = field(default_factory=list, kw_only=True)
    """Labels of other points that train the same."""
    baseline: bool = field(default=False, kw_only=True)
    """Whether the point is a baseline, which is trained even if it is not selected."""
    doubts: list[str] = field(default_factory=list, kw_only=True)
    """What `check_points` finds: parameters that do not learn, a change without an effect."""

    @property
    def display_label(self) -> str:
        """The label with the names of its cuts; see `lmzoo/lab/store/labels.py`."""
        return self.label

    @property
    def display_aliases(self) -> list[str]:
        """The aliases with the names of their cuts."""
        return self.aliases

    @property
    def labels(self) -> set[str]:
        return {self.label, *self.aliases}

    @property
    @abstractmethod
    def code(self) -> UserCode:
        """The code that trains it and is outside the package."""

    @property
    @abstractmethod
    def default_setting(self) -> Setting:
        """The values of the searched fields before the search."""

    @property
    @abstractmethod
    def failure_loss(self) -> float:
        """The loss that the sampler gets for a setting without one: worse than any useful loss."""

    @abstractmethod
    def run_config(self, setting: Settings, seed: int) -> dict[str, Any]:
        """Return the identity config of a run; a `UserError` if the setting is not valid."""

    @abstractmethod
    def facts(self, *, known: bool = False) -> Config:
        """Return its `score`, the kind of its loss, and whether it `leaks`; may take 0.1 s.

        With `known` {} if they are not computed already.
        """

    def with_facts(self, config: Config) -> Config:
        """Return the config of one of its runs with the facts that its worker adds."""
        return config

    @property
    def closed_form(self) -> bool:
        """Whether it is estimated in one pass, as counts are: without noise, in one epoch."""
        return False

    @property
    def architecture(self) -> str:
        """What it is apart from its settings; "" for programs, of which nothing is known."""
        return ""

    @property
    def cell(self) -> str | None:
        """Name of its recurrent cell; None if it has none."""
        return None

    @property
    def data_facts(self) -> Config | None:
        """What reading the user's data gave and lost; None if there is nothing to say."""
        return None

    def sizes(self) -> Mapping[str, int]:
        """Return its `width` and `parameters` before the search, as far as they are known."""
        return {}

    def check_on_cpu(self):  # noqa: B027  most can
        """Raise a UserError if it cannot be trained without a GPU."""

    def seconds_per_epoch(self) -> float | None:
        """Return the estimated seconds of an epoch on one thread; None if it is not known."""
        return None


def reference_id(study: Study, points: Sequence[Trainable]) -> str:
    """Return the id of the point that the others are compared with.

    A `UserError` says that there is none, and names similar ones.
    """
    if not study.reference:
        return points[0].id
    labels = list[str]()
    for point in points:
        # A user may copy the label from a table.
        shown = {point.display_label, *point.display_aliases}
        if study.reference in point.labels | shown:
            return point.id
        labels += [point.label, *point.aliases]
    raise UserError(f"reference: no point {study.reference!r}{near(study.reference, labels)}")


def check_selection(study: Study, points: Sequence[Trainable], needed: Collection[str]):
    """Raise a `UserError` unless the reference is among the points to train."""
    wanted = reference_id(study, points)
    reference = next(point for point in points if point.id == wanted)
    # Baselines are always trained.
    if not reference.baseline and not reference.labels & {*needed}:
        raise UserError(
            f"--points leaves out the reference {reference.label!r}, with which the points are "
            f"compared; add it: --points {shlex.quote(reference.label)},..."
        )
