"""Programs: packed trainers that are kept with their recordings and serve one pack after another.

To record a CUDA graph takes as long as some epochs of a small pack. So a graph must survive members
that leave and others that join: a program has a power of two of rows, and the rows without a member
are idle. A pack moves to a smaller program when a quarter of the rows or fewer are in use.

The programs belong to the recorder of the device, which is one for a process. They exist only where
a recorder keeps its recordings (`Recorder.few_shapes`), and for the steps of Adam, whose settings
are tensors.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from lmzoo.kernels.device import device_of
from lmzoo.train.capture import stepper
from lmzoo.train.capture.recorder import Recorder
from lmzoo.train.packed.compatibility import pack_key
from lmzoo.train.recipe import Accumulate, Optimiser
from lmzoo.train.trainer import Training

if TYPE_CHECKING:
    from lmzoo.train.packed.trainer import PackedTrainer

ROWS_PER_MEMBER = 4
"""A program is used by so many members that it has fewer rows for each."""
MAX_PROGRAMS = 8
"""Programs that are kept; the one that was used longest ago makes room for a new one."""


def rows_of_program(count: int) -> int:
    """Return the rows of a new program for so many members: a power of two."""
    return 1 << (count - 1).bit_length()


def has_programs(trainings: Sequence[Training]) -> bool:
    """Whether members like these are trained by programs that are kept."""
    recipe = trainings[0].recipe
    by_adam = recipe.optimiser in (Optimiser.ADAM, Optimiser.ADAMW)
    return by_adam and recipe.accumulate is Accumulate.STEP and _recorder(trainings) is not None


def find_program(trainings: Sequence[Training]) -> "PackedTrainer | None":
    """Return the kept program with the fewest rows that are enough; None if there is none."""
    recorder, key, count = _recorder(trainings), _key(trainings), len(trainings)
    if recorder is None:
        return None
    fitting = [
        rows
        for *other, rows in recorder.programs
        if other == key and count <= rows < ROWS_PER_MEMBER * count
    ]
    if not fitting:
        return None
    name = (*key, min(fitting))
    recorder.programs[name] = recorder.programs.pop(name)  # the last one is the last one used
    return recorder.programs[name]


def keep_program(program: "PackedTrainer", trainings: Sequence[Training]) -> "PackedTrainer":
    """Keep a program for later packs like this one, and return it."""
    recorder = _recorder(trainings)
    assert recorder is not None
    while len(recorder.programs) >= MAX_PROGRAMS:
        del recorder.programs[next(iter(recorder.programs))]
    recorder.programs[*_key(trainings), len(program.stacked.values)] = program
    return program


def free_programs(trainings: Sequence[Training]) -> None:
    """Free the memory of all programs of the device, and of the trainers of these members."""
    for training in trainings:
        training.packed_trainer = None
    if (recorder := _recorder(trainings)) is not None:
        recorder.programs.clear()


def _recorder(trainings: Sequence[Training]) -> Recorder | None:
    recorder = stepper.device_recorder(device_of(trainings[0].model))
    return recorder if recorder is not None and recorder.few_shapes else None


def _key(trainings: Sequence[Training]) -> list[Any]:
    """Return what the steps of a pack depend on, besides numbers in its memory."""
    first = trainings[0]
    return [pack_key(first.model.config, first.recipe), first.model.task, torch.get_default_dtype()]
