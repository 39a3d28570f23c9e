"""Losses that differ by rounding only are equal, and no others."""

import numpy as np

from lmzoo.lab.statistics.ties import settled
from tests.cases import cases


@cases("lab/statistics/cases.toml", "ties", "losses, expected")
def test_a_loss_is_the_first_one_that_it_equals(losses, expected):
    np.testing.assert_array_equal(settled(losses), expected)


def test_each_row_is_settled_by_itself():
    found = settled([[4.0, 4.00006], [4.00006, 4.0]])
    np.testing.assert_array_equal(found, [[4.0, 4.0], [4.00006, 4.00006]])


def test_differences_of_losses_have_the_scale_of_these():
    differences = [1e-5, 2e-5, 1e-3]
    found = settled(differences, scale=4.0)
    np.testing.assert_array_equal(found, [1e-5, 1e-5, 1e-3])
