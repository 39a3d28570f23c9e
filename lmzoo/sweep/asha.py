"""ASHA within one point, made independent of timing.

ASHA stops a run at a rung (epoch grace·η^k) if its loss is above the best 1/η quantile of the
losses recorded there. In the published algorithm the recorded losses depend on which runs came
first. Here a run is compared only with runs of *earlier generations* of its own point, all of which
have ended. So a sweep stops the same runs regardless of the order of execution, deaths and
restarts. With one run per generation it equals the published algorithm.

Li et al. 2020 (arXiv:1810.05934).
"""

from collections.abc import Sequence

import numpy as np


def rungs(grace: int, reduction: int, epochs: int) -> list[int]:
    """Return the epochs at which ASHA may stop a run: all grace·η^k below the full budget."""
    result = []
    epoch = grace
    while epoch < epochs:
        result.append(epoch)
        epoch *= reduction
    return result


def passes_rung(loss: float, recorded: Sequence[float], reduction: int) -> bool:
    """Return True if a run with this loss passes a rung with these recorded losses."""
    if not recorded:
        return True
    return loss <= float(np.percentile(recorded, 100 / reduction))
