"""ASHA within one point, made independent of timing.

ASHA stops a run at a rung (epoch grace·η^k) if its loss is above the best 1/η quantile
of the losses recorded there. Which losses are recorded depends on who came first. Here
a run is judged only by runs of *earlier generations* of its own point, all of which
have ended, so the same sweep stops the same runs however its trials were interleaved,
killed or restarted. With one run per generation it is ASHA as published.

Li et al. 2020 (arXiv:1810.05934).
"""

from collections.abc import Sequence

import numpy as np


def rungs(grace: int, reduction: int, epochs: int) -> list[int]:
    """The epochs at which runs are judged: grace·η^k, below the full budget."""
    found = []
    epoch = grace
    while epoch < epochs:
        found.append(epoch)
        epoch *= reduction
    return found


def passes_rung(loss: float, recorded: Sequence[float], reduction: int) -> bool:
    """Whether a run with this loss passes a rung where these losses are recorded."""
    if not recorded:
        return True
    return loss <= float(np.percentile(recorded, 100 / reduction))
