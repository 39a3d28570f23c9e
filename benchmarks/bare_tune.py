"""A sweep of Ray Tune that trains nothing: Ray, Tune and torch start, run two trials, and end.

    python benchmarks/bare_tune.py

Two trials of one step, in two processes that import torch, with the settings that make our own
sweeps start faster. `sweep.py` compares its overhead with this.
"""

import gc
import os
import tempfile

WORKERS = 2


def main() -> None:
    """Start, train nothing, end."""
    gc.disable()  # collections during imports only cost time
    os.environ.update(RAY_AIR_NEW_OUTPUT="0", TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1")
    import ray
    import torch
    from ray import tune
    from ray.tune.execution.class_cache import DEFAULT_ENV_VARS

    DEFAULT_ENV_VARS.clear()  # with these Ray would start additional processes

    class Nothing(tune.Trainable):
        """Return one number of torch, and end."""

        def setup(self, config: dict) -> None:
            self.number = torch.zeros(1)

        def step(self) -> dict:
            return {"loss": float(self.number), "done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Save nothing."""

        def load_checkpoint(self, checkpoint: dict | None) -> None:
            """Load nothing."""

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=WORKERS, **quiet)
    with tempfile.TemporaryDirectory() as folder:
        tune.run(
            Nothing,
            num_samples=WORKERS,
            resources_per_trial={"cpu": 1},
            storage_path=folder,
            verbose=0,
        )
    ray.shutdown()


if __name__ == "__main__":
    main()
