"""The least that a sweep of two places takes: Ray, Tune and torch start, train nothing, and end.

    python benchmarks/bare_tune.py

Two trials of one step, in two processes that import torch, with whatever makes our own sweeps
start sooner. These are put beside it by `sweep.py`.
"""

import gc
import os
import tempfile

PLACES = 2


def main() -> None:
    """Start, train nothing, end."""
    gc.disable()  # it would look through all that is imported, again and again
    os.environ.update(RAY_AIR_NEW_OUTPUT="0", TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1")
    import ray
    import torch
    from ray import tune
    from ray.tune.execution.class_cache import DEFAULT_ENV_VARS

    DEFAULT_ENV_VARS.clear()  # for these Ray would start more processes, and leave its own idle

    class Nothing(tune.Trainable):
        """Holds one number of torch's, and is done."""

        def setup(self, config: dict) -> None:
            self.number = torch.zeros(1)

        def step(self) -> dict:
            return {"loss": float(self.number), "done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Nothing."""

        def load_checkpoint(self, checkpoint: dict | None) -> None:
            """Nothing."""

    ray.init(
        address="local",
        num_cpus=PLACES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    with tempfile.TemporaryDirectory() as folder:
        tune.run(
            Nothing,
            num_samples=PLACES,
            resources_per_trial={"cpu": 1},
            storage_path=folder,
            verbose=0,
        )
    ray.shutdown()


if __name__ == "__main__":
    main()
