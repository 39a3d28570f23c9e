"""Who is informed of what the runs do: the console, and a study's own listeners.

class Slack:
    def end(self, run, test):
        post(f"{run.display_label} {run.status} {test and test['token']}")

STUDY = Study(..., listeners=(Slack(),))
"""

import logging
from collections.abc import Sequence
from typing import Any

from lmzoo.base.errors import describe_error
from lmzoo.lab.store.records import Record
from lmzoo.lab.study.planned_run import PlannedRun

LOG = logging.getLogger("lmzoo.lab.sweep")


class Listeners:
    """Calls those methods of each listener that it has; one that raises is not called again.

    A run has `id`, `display_label`, `stage` (tune or confirm), `config`, `status` and `curve`.
    """

    def __init__(self, listeners: Sequence[Any] = ()):
        self.listeners = list(listeners)
        self._started = set[str]()

    def start(self, run: PlannedRun):
        """Say that a run starts, once in a sweep."""
        if run.id not in self._started:
            self._started.add(run.id)
            self._call("start", run)

    def epoch(self, run: PlannedRun, record: Record):
        """Give the `epoch` event of a run, which has losses and seconds."""
        self._call("epoch", run, record)

    def end(self, run: PlannedRun, test: Record | None):
        """Say that a run has ended, with its `test` event if it has one."""
        self._call("end", run, test)

    def _call(self, method: str, *arguments: Any):
        for listener in list(self.listeners):  # a copy: one that raises is removed
            own = getattr(listener, method, None)
            if own is None:
                continue
            try:
                own(*arguments)
            # A study's own code must not end the sweep, whatever it raises.
            except (Exception, SystemExit) as error:
                self.listeners.remove(listener)
                name = type(listener).__name__
                LOG.warning("listener %s is not called again: %s", name, describe_error(error))
