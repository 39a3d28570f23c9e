"""The door to what a study can train, as the study machine sees it.

The machine plans, schedules, stores and judges runs; it knows no model. The module `DOOR` opens the
data of a study, resolves its points, and makes the trainer of a worker. It has the functions of
`Door`; a package with other trainables needs no more than these.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from lmzoo.lab.store.records import Record, RunFolder
from lmzoo.lab.store.saved_run import SavedRun
from lmzoo.lab.store.tensors import Buffer
from lmzoo.lab.store.writer import Writer
from lmzoo.lab.study.study import Study
from lmzoo.lab.study.trainable import Trainable

Config = Mapping[str, Any]
"""The config of a run."""
DOOR = "lmzoo.trainables.door"
"""The rows of the zoo, Python functions and commands."""


class Data(Protocol):
    """The data of a study."""

    @property
    def fields(self) -> dict[str, Any] | None:
        """The config of its corpus; None if no point needs one."""
        ...

    @property
    def corpus(self) -> Any:
        """The corpus; None if no point needs one."""
        ...

    @property
    def lines(self) -> list[str]:
        """What reading a text of the user gave and lost."""
        ...

    @property
    def source(self) -> str:
        """What the data are, in a line."""
        ...


class Shape(Protocol):
    """What is known of the runs of one pack key."""

    pays_on_cpu: bool
    packable: bool

    def member_bytes(self) -> int:
        """Return the memory of one pack member."""
        ...


class Shapes(Protocol):
    """Which runs may share a pack, and the facts about their models."""

    def key(self, config: Config) -> str:
        """Return a key that is equal for runs that may share a pack."""
        ...

    def get(self, config: Config) -> Shape:
        """Return the shape of a run."""
        ...

    def facts(self, config: Config) -> Config:
        """Return the facts about the run's model; they are computed at the first call."""
        ...

    def known_facts(self, config: Config) -> Config:
        """Return the facts about the run's model if they are computed already; else {}."""
        ...


class Trainer(Protocol):
    """Opens and trains the runs of a worker."""

    memory: int
    """Bytes of its share of a GPU; 0: the CPU."""

    def with_facts(self, config: Config) -> Config:
        """Return the config of a run with the facts about its model."""
        ...

    def open(
        self, folder: RunFolder, config: Config, *, new: bool, writer: Writer | None
    ) -> SavedRun:
        """Return a run of this process in its folder."""
        ...

    def train_packed(self, runs: Sequence[SavedRun]) -> None:
        """Train one epoch of runs that share a pack."""
        ...

    def packed_state(
        self, runs: Sequence[SavedRun], records: Sequence[Sequence[Record]]
    ) -> Callable[[int], Sequence[Buffer]]:
        """Return a function that makes the file of the state of runs after an epoch in a pack.

        `records` are those of each run that may not be on disk. A thread may call it later.
        """
        ...

    def test_packed(self, runs: Sequence[SavedRun]) -> None:
        """Compute the test losses of a pack at once."""
        ...

    def is_final(self, error: Exception) -> bool:
        """Return whether another worker, or another attempt, would meet the error, too."""
        ...


class Door(Protocol):
    """The functions of the module `DOOR`."""

    def check_settings(self, study: Study, settings: Mapping[str, Any]) -> None:
        """Refuse settings for all points that change what the points are about."""
        ...

    def open_data(self, study: Study, data_dir: Path | None = None) -> Data:
        """Open the corpus of a study, if one of its points needs one."""
        ...

    def select_labels(self, study: Study, corpus: Any, text: str) -> set[str]:
        """Return the labels in `LABEL,LABEL` and those of the baselines; all if it is empty."""
        ...

    def resolve(
        self, study: Study, corpus: Any, corpus_fields: Any, needed: Collection[str] | None = None
    ) -> list[Trainable]:
        """Return the points of a study, equal points merged, and the baselines."""
        ...

    def store_folder(self, storage: Path, study: str, corpus: Any) -> Path:
        """Return the folder of a study's store."""
        ...

    def make_shapes(self, corpus: Any) -> Shapes:
        """Return the shapes of the runs of a study."""
        ...

    def is_counted(self, config: Config) -> bool:
        """Return whether runs with the key of this one load the same estimate."""
        ...

    def make_trainer(self, corpus: Any, threads: int, gpu: float) -> Trainer:
        """Return the trainer of a worker with a share of a GPU; 0: the CPU."""
        ...

    def row_name(self, name: str) -> str:
        """Return the whole name of a row."""
        ...


@functools.cache
def open_door() -> Door:
    """Return the door; the first call imports torch."""
    return cast(Door, import_module(DOOR))
