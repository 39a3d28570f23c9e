"""The CPUs and GPUs of a worker, and how many workers fit on a node."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from lmzoo.base.errors import UserError

ROUNDING = 1e-9
"""Added to quotients such as 7 / 0.07, which floating point makes slightly too small."""


@dataclass(frozen=True)
class Resources:
    """What each worker needs.

    Attributes:
        cpus: CPUs of a worker.
        gpus: GPUs of a worker, or a share of one GPU; None: not decided.
        concurrent: The maximum number of workers; 0: as many as fit.
        device: `cpu` uses no GPU, `gpu` requires GPUs, `auto` uses the GPUs that there are.
        hours: The most hours of all workers together; 0: no limit.
    """

    cpus: float = 1.0
    gpus: float | None = None
    concurrent: int = 0
    device: str = "auto"
    hours: float = 0.0

    def __post_init__(self):
        gpus = self.gpus
        numbers = {"cpus-per-trial": self.cpus, "gpus-per-trial": gpus or 0, "max-cost": self.hours}
        for option, value in numbers.items():
            if not math.isfinite(value):
                raise UserError(f"--{option} {value} is not a finite number")
        if self.device not in ("auto", "cpu", "gpu"):
            raise UserError(f"--device {self.device!r} is unknown; choose auto, cpu or gpu")
        # Ray gives a worker whole GPUs or a share of one.
        if gpus is not None and gpus > 1 and gpus != int(gpus):
            raise UserError(
                f"--gpus-per-trial {gpus:g} is neither a share of one GPU nor a whole number"
            )
        contradicting = "gpu"
        if gpus:
            contradicting = "cpu"
        if gpus is not None and self.device == contradicting:
            raise UserError(f"--device {self.device} contradicts --gpus-per-trial {gpus:g}")

    def __str__(self) -> str:
        if self.gpus:
            return f"{self.cpus:g} CPU and {self.gpus:g} GPU"
        return f"{self.cpus:g} CPU"

    @property
    def bundle(self) -> dict[str, float]:
        """What Ray reserves for a worker."""
        return {"CPU": self.cpus, "GPU": self.gpus or 0.0}

    def decide(self, *, has_gpus: bool) -> "Resources":
        """Return the resources with the GPUs decided; `has_gpus`: the cluster has GPUs."""
        # `--gpus-per-trial` has decided.
        if self.gpus is not None:
            return self
        gpus = 0.0
        if self.device == "gpu" or (self.device == "auto" and has_gpus):
            gpus = 1.0
        return dataclasses.replace(self, gpus=gpus)

    def workers_on(self, node: Mapping[str, float]) -> int:
        """Return how many workers fit on a node; `node` maps CPU and GPU to their numbers.

        A share of a GPU is a share of one GPU: of two GPUs, shares of 0.6 make two workers.
        """
        workers = int(node.get("CPU", 0) / self.cpus + ROUNDING)
        if not self.gpus:
            return workers
        shares = 1 / self.gpus
        if self.gpus < 1:
            shares = int(shares + ROUNDING)  # a share does not reach over two GPUs
        return min(workers, int(int(node.get("GPU", 0)) * shares + ROUNDING))
