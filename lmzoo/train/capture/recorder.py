"""The interface of a recorder of operations."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

Column = Tensor | None
"""One input of a step: the tokens, the lengths, ...; None if a batch lacks this input."""
Work = Callable[[], None]
Step = Callable[..., None]
"""A training step, `step(rate, *columns)`. It changes existing tensors and returns nothing."""


@runtime_checkable
class Recorder(Protocol):
    """Records the operations of a function, for example as a CUDA graph."""

    warmup_steps: int
    """Number of steps of a shape that run normally before one is recorded."""
    few_shapes: bool
    """Whether recordings are few and kept: batches have few shapes, and the steps of a pack serve
    other members later (`packed/kept_trainers.py`)."""
    rate_dtype: torch.dtype
    """The dtype of the tensor that holds the learning rate."""
    runs_while_recording: bool
    """Whether `record` also performs the work."""

    def run(self, work: Work) -> str:
        """Run the work normally; return the reason why it cannot be recorded, or ''."""
        ...

    def record(self, work: Work) -> Work:
        """Record the work; return a function that replays it on the same memory.

        Raises:
            RecordingError: The work cannot be recorded. If `runs_while_recording`, it was
                performed nevertheless.
        """
        ...


class RecordingError(Exception):
    """The work cannot be recorded; the message gives the reason."""
