"""The trackers that `--track` names: Ray Tune's callbacks for W&B and MLflow."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lmzoo.errors import UserError

if TYPE_CHECKING:
    from ray.tune import Callback


def _wandb(experiment: str) -> "Callback":
    from ray.air.integrations.wandb import WandbLoggerCallback

    # A Ray cluster that is already running does not pass these variables to W&B's processes.
    place: dict[str, Any] = {k: os.environ.get(f"WANDB_{k.upper()}") for k in ("mode", "entity")}
    project = os.environ.get("WANDB_PROJECT", experiment)
    return WandbLoggerCallback(project=project, group=experiment, resume="allow", **place)


def _mlflow(experiment: str) -> "Callback":
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    return MLflowLoggerCallback(experiment_name=experiment)


TRACKERS: dict[str, Callable[[str], "Callback"]] = {"wandb": _wandb, "mlflow": _mlflow}
"""Value of `--track`, which is also the module that it needs -> its callback."""


def check_trackers(names: Sequence[str]) -> None:
    """Return if each name is a tracker whose package is installed.

    Raises:
        UserError: A name is unknown, or its package is not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"--track {name!r} is unknown; choose from {', '.join(TRACKERS)}")
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"--track {name}: {name} is not installed; run: pip install 'lmzoo[track]'"
            )


def tracking_callbacks(names: Sequence[str], experiment: str) -> list["Callback"]:
    """Return the callbacks of these trackers; `experiment` becomes the W&B project and group."""
    return [TRACKERS[name](experiment) for name in names]
