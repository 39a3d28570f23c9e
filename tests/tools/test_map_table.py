"""The map: an interval of a rank correlation holds the truth as often as it says."""

import re

import numpy as np
from map_table import rank_correlation
from polars import Series


def test_the_interval_of_a_correlation_is_over_cells():
    rng = np.random.default_rng(0)
    cells = Series(np.arange(98) % 14)
    held = 0
    for _ in range(100):
        # The cuts of a cell share a part of each cost; the two costs have nothing in common.
        of_cells = np.tile(rng.standard_normal((2, 14)), 7)
        one, other = of_cells + rng.standard_normal((2, 98))
        found = rank_correlation(Series(one), Series(other), cells)
        _, low, high = re.findall(r"−?\d\.\d+", found)
        held += low.startswith("−") and not high.startswith("−")
    assert held > 90
