"""Losses that differ by rounding only are equal, and no others."""

import math

import numpy as np
import pytest

from lmzoo.lab.statistics.ties import TIE, settled


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([4.0, 4.0 * (1 + TIE / 2), 4.1], [4.0, 4.0, 4.1]),
        ([4.0 * (1 + TIE / 2), 4.0, 4.1], [4.0 * (1 + TIE / 2)] * 2 + [4.1]),
        ([4.0, 4.0 * (1 + 2 * TIE)], [4.0, 4.0 * (1 + 2 * TIE)]),
        ([-1e-9, -2e-9, -2e-9 * (1 + TIE / 2)], [-1e-9, -2e-9, -2e-9]),
        ([0.0, 1e-12, 0.0], [0.0, 1e-12, 0.0]),
        ([math.inf, 3.0, math.inf, -math.inf], [math.inf, 3.0, math.inf, -math.inf]),
        ([math.nan, 3.0, math.nan], [math.nan, 3.0, math.nan]),
        ([], []),
    ],
)
def test_a_loss_is_the_first_one_that_it_equals(losses, expected):
    np.testing.assert_array_equal(settled(losses), expected)
    np.testing.assert_array_equal(settled([losses, losses]), [expected, expected])


def test_differences_of_losses_have_the_scale_of_these():
    np.testing.assert_array_equal(settled([1e-5, 2e-5, 1e-3], 4.0), [1e-5, 1e-5, 1e-3])
