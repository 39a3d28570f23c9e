"""What records the operations of a piece of work, and what it is given."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

Column = Tensor | None
Work = Callable[[], None]
Step = Callable[..., None]
"""(rate, *columns) -> nothing: all that it does, it does to what lies there."""


@runtime_checkable
class Recorder(Protocol):
    """What can record the operations of a piece of work, such as a CUDA graph."""

    warm: int
    """Steps of a shape before it is recorded."""
    multiple: int
    """Batches are as long as a multiple of so many tokens, so that few shapes come again."""
    rates: torch.dtype
    """The type of a learning rate that is a tensor."""
    does: bool
    """Whether work is done while it is recorded."""

    def run(self, work: Work) -> str:
        """Do the work as it is; why it cannot be recorded, or ''."""
        ...

    def record(self, work: Work) -> Work:
        """What does the work again, in the same memory.

        Raises:
            RecordingError: it cannot be recorded; done it is if ever this recorder does it.
        """
        ...


class RecordingError(Exception):
    """Work that cannot be recorded; the message says why."""
