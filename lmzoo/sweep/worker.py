"""The worker: a Ray Tune trainable that trains a pack of runs, one epoch per step.

A worker keeps no state that Ray Tune must save. It opens the run folders, continues from their
checkpoints, and writes each epoch to the folders before it reports the epoch.

A worker that has not heard from the sweep for `RELEASE_SECONDS`, because the network between them
is down, closes its runs, so that a successor on another node can continue them. A worker without a
heartbeat is killed by the sweep (`heartbeat.py`).
"""

import threading
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from ray import tune

from lmzoo.sweep import reassign
from lmzoo.sweep.heartbeat import start_heartbeat

if TYPE_CHECKING:
    from lmzoo.sweep.worker_run import Report, WorkerRun

LOCK_SECONDS = 60.0
"""How long to wait for the lock of a run whose previous worker was killed."""
RELEASE_SECONDS = 30.0
"""Seconds between two steps after which the worker closes its runs."""


class Worker(tune.Trainable):
    """Trains the runs whose folders are in its config; Ray Tune reuses the actor for many packs."""

    def setup(
        self,
        config: dict[str, Any],
        corpus: Any = None,
        threads: int = 1,
        gpu: bool = False,  # noqa: FBT001, FBT002  Ray Tune passes it by keyword
    ) -> None:
        """Set up the device and the corpus; torch is imported here, after the heartbeat starts."""
        start_heartbeat()
        import torch

        from lmzoo.device import CPU, best_device

        torch.set_num_threads(threads)
        self._device = best_device() if gpu else CPU
        self._corpus: Any = None if corpus is None else corpus.to(self._device)
        self._runs: dict[str, WorkerRun] = {}
        self._mutex = threading.RLock()
        self._release_timer = threading.Timer(RELEASE_SECONDS, self.cleanup)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Close the runs of the last pack; the first step opens the runs of the new one.

        Ray Tune starts some actors without giving them work. They must not lock any run.
        """
        self.cleanup()
        self.config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """Train one epoch of every run; test and end the runs that reach their budget."""
        # Read before the timer is cancelled, because Ray may not respond. A single run is never
        # reassigned.
        is_pack = len(self.config["folders"]) > 1
        removed = reassign.removed_runs(self.trial_id) if is_pack else ()
        with self._mutex:
            self._release_timer.cancel()
            self.release(removed)
            reports = self._train_epoch()
            self._release_timer = threading.Timer(RELEASE_SECONDS, self.cleanup)
            self._release_timer.daemon = True
            self._release_timer.start()
        done = all(ended for *_, ended in reports)
        return {"runs": reports, "loss": float(len(reports)), "done": done}

    def cleanup(self) -> None:
        """Close all runs, which releases their locks."""
        with self._mutex:
            self._release_timer.cancel()
            for run in self._runs.values():
                run.close()
            self._runs = {}

    def release(self, removed: Container[str]) -> None:
        """Close the runs that the sweep has reassigned to another worker."""
        kept = [f for f in self.config["folders"] if reassign.run_id_of(f) not in removed]
        self.config = {**self.config, "folders": kept}
        for folder in [folder for folder in self._runs if folder not in kept]:
            self._runs.pop(folder).close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Do nothing: the run folders hold all state."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Do nothing: the run folders hold all state."""

    def _train_epoch(self) -> "list[Report]":
        from lmzoo.sweep.worker_run import WorkerRun, is_run_pending, train_epoch

        reports, resumed, budget = [], set(), self.config["budget"]
        for folder in self.config["folders"]:
            if is_run_pending(folder, budget):
                if folder not in self._runs:
                    run = WorkerRun(folder, self._corpus, self._device, LOCK_SECONDS)
                    self._runs[folder] = run
                    resumed |= {folder} if run.run.epoch else set()
                continue
            # The run ended before this worker was restarted, or the sweep has pruned it.
            reports.append((reassign.run_id_of(folder), 0, None, True))
            if folder in self._runs:
                self._runs.pop(folder).close()
        # The sweep may not know the last epoch of a resumed run, and may end the run because of
        # it. So a resumed run first reports that epoch, and trains in the next step.
        runs = [run for folder, run in self._runs.items() if folder not in resumed]
        train_epoch(runs, budget, self._corpus, packed=self.config["packed"])
        return reports + [run.report(budget) for run in self._runs.values()]
