"""Runs as a Ray Tune trial: an epoch a step, everything safe before it is reported.

A trial trains one run, or a pack of runs as one program (`fused.py`). It owns no state
that Tune would have to save: it opens the runs' folders, goes on from their checkpoints,
and after each epoch the folders have all there is; a trial that dies is simply started
again. One that hears no more of its sweep, because the network between them is cut, lets
go of its runs, so that its successor elsewhere can go on with them; one of which its
sweep hears no more is killed (`pulse.py`).
"""

import threading
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from ray import tune

from lmzoo.sweep import reassign as handover
from lmzoo.sweep.heartbeat import start_heartbeat

if TYPE_CHECKING:
    from lmzoo.sweep.worker_run import Report

PATIENCE = 60.0
"""Seconds to wait for a killed predecessor to let go of the run."""
SILENCE = 30.0
"""Seconds without a word from the sweep after which the trial lets go of the run."""


class Worker(tune.Trainable):
    """Trains the runs whose folders are in its config; the actor is used for many packs."""

    def setup(
        self,
        config: dict[str, Any],
        corpus: Any = None,
        threads: int = 1,
        gpu: bool = False,  # noqa: FBT001, FBT002  Tune hands it over
    ) -> None:
        """Make ready; torch is imported here and never in the driver's Tune code."""
        start_heartbeat()
        import torch

        from lmzoo.device import CPU, best_device

        torch.set_num_threads(threads)
        self._device = best_device() if gpu else CPU
        self._corpus: Any = None if corpus is None else corpus.to(self._device)
        self._runs: dict[str, "OpenRun"] = {}
        self._turn = threading.RLock()
        self._silence = threading.Timer(SILENCE, self.cleanup)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Let go of the last runs; the next are opened when their first epoch is asked for.

        Tune starts actors that it then gives no work; such a one must not hold a run.
        """
        self.cleanup()
        self.config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """Train one epoch of every run; at the end of its budget, test it and write its end."""
        # Ray is asked before silence is off; of a single run nothing can be given away.
        several = len(self.config["folders"]) > 1
        gone = handover.reassigned(self.trial_id) if several else ()
        with self._turn:
            self._silence.cancel()
            self.let_go(gone)
            reports = self._epoch()
            self._silence = threading.Timer(SILENCE, self.cleanup)
            self._silence.daemon = True
            self._silence.start()
        done = all(ended for *_, ended in reports)
        return {"runs": reports, "loss": float(len(reports)), "done": done}

    def cleanup(self) -> None:
        """Let go of the runs."""
        with self._turn:
            self._silence.cancel()
            for run in self._runs.values():
                run.close()
            self._runs = {}

    def let_go(self, gone: Container[str]) -> None:
        """Close the runs that the sweep has given to another place since the last epoch."""
        kept = [where for where in self.config["folders"] if handover.run_of(where) not in gone]
        self.config = {**self.config, "folders": kept}
        for where in [where for where in self._runs if where not in kept]:
            self._runs.pop(where).close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the runs' folders have it all."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: the runs' folders have it all."""

    def _epoch(self) -> "list[Report]":
        from lmzoo.sweep.worker_run import WorkerRun, has_work, train_epoch

        reports, resumed, budget = [], set(), self.config["budget"]
        for where in self.config["folders"]:
            if has_work(where, budget):
                if where not in self._runs:
                    self._runs[where] = run = WorkerRun(where, self._corpus, self._device, PATIENCE)
                    resumed |= {where} if run.run.epoch else set()
                continue
            # It ended before this trial was started again, or its sweep has pruned it.
            reports.append((handover.run_of(where), 0, None, True))
            if where in self._runs:
                self._runs.pop(where).close()
        # Of an epoch that was done when its trial died, the sweep may not have heard: it may
        # have ended the run there, so it is told first.
        runs = [run for where, run in self._runs.items() if where not in resumed]
        train_epoch(runs, budget, self._corpus, fused=self.config["fused"])
        return reports + [run.report(budget) for run in self._runs.values()]
