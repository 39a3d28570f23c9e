"""One run as a Ray Tune trial: an epoch a step, everything safe before it is reported.

The trial owns no state that Tune would have to save. It opens the run's folder, goes on
from its checkpoint, and after each epoch the folder has all there is; a trial that dies
is simply started again.
"""

from pathlib import Path
from typing import Any

from ray import tune

from lmzoo.record import RunFolder

PATIENCE = 60.0
"""Seconds to wait for a killed predecessor to let go of the run."""


class Trial(tune.Trainable):
    """Trains the run whose folder is in its config; the actor is used for many runs."""

    def setup(self, config: dict[str, Any], corpus: Any = None, threads: int = 1) -> None:
        """Open the run; torch is imported here and never in the driver's Tune code."""
        import torch

        torch.set_num_threads(threads)
        self._corpus = corpus
        self._run = None
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Let go of the last run and open the next one."""
        from lmzoo.run import Run
        from sweeps.engine.board import Board

        self.cleanup()
        folder = RunFolder(Path(new_config["folder"]))
        config = folder.config
        assert config is not None, f"{folder.path} has no config"
        self.config = new_config
        self._test = config["stage"] == "confirm"
        self._run = Run(folder, config, self._corpus, patience=PATIENCE)
        self._board = Board(folder.path, config, self._run.epoch)
        return True

    def step(self) -> dict[str, Any]:
        """Train one epoch; at the end of the budget, test and write down the end."""
        run, budget = self._run, self.config["budget"]
        assert run is not None
        record = next(run.train(budget), None)
        if record is not None:
            self._board.epoch(record)
        done = run.epoch >= budget or run.training.diverged
        if done:
            self._finish()
        last = run.training.record
        return {"epoch": run.epoch, "loss": last["valid_token"], "done": done}

    def cleanup(self) -> None:
        """Let go of the run."""
        if self._run is not None:
            self._run.close()
            self._board.close()
            self._run = None

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the run's folder has it all."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: the run's folder has it all."""

    def _finish(self) -> None:
        run = self._run
        assert run is not None
        if run.training.diverged:
            run.end("diverged", f"the loss was not finite at epoch {run.epoch}")
            return
        if self._test:
            losses = run.test()
            self._board.test(losses.token, losses.sentence, run.epoch)
        run.end("finished")
