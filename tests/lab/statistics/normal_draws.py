"""Standard normal numbers of a seed."""

import numpy as np


def normal(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape)
