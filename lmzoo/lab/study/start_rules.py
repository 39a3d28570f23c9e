"""When a setting of a point may start, and with which earlier settings it is compared.

Decisions do not depend on timing. With `parallel` = w, setting i starts when

    the settings 0 to i-w have ended or reached the first rung,
    the settings 0 to i-2w have ended or reached the second rung, and so on,
    and, after the last of L - 1 rungs, the settings 0 to i-Lw have ended,

and a setting after the start design starts when the start design has ended, too. With the pruner
`asha` the whole start design starts at once (`point_planner.py`).

The pruner compares run i up to the k-th rung with the settings 0 to i-kw, whose losses there are
known; the sampler suggests setting i from the results of the settings 0 to i-Lw and of the start
design. So the same settings are tried and the same runs are pruned whatever the order of execution,
deaths and restarts, and a long run does not delay the start of the next one.
"""

import bisect
import math
from collections.abc import Sequence

from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.pruners import rungs
from lmzoo.lab.study.study import Study


class StartRules:
    """The rules for one point, whose start design has `design` settings."""

    def __init__(self, study: Study, design: int) -> None:
        self._parallel, self._design = study.settings_in_parallel, design
        self._levels = [*rungs(study), math.inf]
        """Epochs that settings must reach, in this order; infinity is the end."""
        self._reached = [0] * len(self._levels)
        """Number of settings before the first one that has not reached the level."""

    @property
    def lag(self) -> int:
        """Lw: setting i is suggested from the results of the settings 0 to i-Lw."""
        return self._parallel * len(self._levels)

    def startable(self, runs: Sequence[PlannedRun], most: int) -> int:
        """Return how many of the first `most` settings may start.

        `runs` are those of the settings that have started, all of which count.
        """
        for k, level in enumerate(self._levels):
            while (n := self._reached[k]) < len(runs):
                if not runs[n].status and runs[n].last_epoch < level:
                    break
                self._reached[k] += 1
        starts = (n + self._parallel * (k + 1) for k, n in enumerate(self._reached))
        return max(len(runs), min(most, *starts))

    def compared(self, index: int, epoch: int) -> int:
        """Return the number of first settings with which setting `index` is compared."""
        level = bisect.bisect_left(self._levels, epoch)
        known = max(0, index - self._parallel * (level + 1) + 1)
        return known if index < self._design else max(known, self._design)
