"""A run as the agenda sees it: what decides it, its curve so far, how it ended."""

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class PlannedRun:
    """A run to be trained, or one that has been."""

    run: str
    """Its identity; '' of a setting that is no model, and has no run."""
    label: str
    stage: str
    """tune or confirm."""
    index: int
    """Sample number, or seed."""
    config: dict[str, Any]
    """What decides it, and its labels; what is measured of its model joins them in the folder."""
    budget: int
    curve: dict[int, float] = field(default_factory=dict)
    """Epoch -> lowest validation loss so far."""
    status: str = ""
    """How it ended; '' while it has not."""
    reason: str = ""
    """Why it failed."""

    def take(self, epoch: int, loss: float | None) -> None:
        """Add an epoch to the curve."""
        if loss is not None:
            self.curve[epoch] = min(loss, self.curve.get(epoch - 1, math.inf))

    @property
    def value(self) -> float | None:
        """The lowest validation loss."""
        return min(self.curve.values(), default=None)
