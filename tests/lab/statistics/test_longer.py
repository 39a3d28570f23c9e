"""What longer training would bring, from curves whose course is known."""

import numpy as np
import pytest

from lmzoo.lab.statistics.longer import longer
from tests.cases import cases

EPOCHS = np.arange(1, 17)


@pytest.mark.parametrize("margin", [0.02, 0.05])
def test_curves_that_gain_as_much_at_each_doubling(margin):
    """0.06 nats each time for one point, 0.1 for the other: the differences move by 0.04."""
    doublings = np.log2(EPOCHS)
    # Sixteen epochs: the doublings end at 2, 4, 8 and 16.
    curves = np.empty((2, 16))
    curves[0] = 3 - 0.06 * doublings
    curves[1] = 3 - 0.1 * doublings
    found = longer(curves, 0, margin)
    assert found.gain == pytest.approx(0.08)
    assert found.moved == pytest.approx(0.04)
    assert found.epochs == 64, "no more than two doublings are said"
    assert longer(curves, None, margin).moved == 0


@pytest.fixture
def unknown():
    return np.full((2, 16), np.nan)


@cases("lab/statistics/cases.toml", "doublings", "margin, epochs")
def test_after_the_epochs_a_doubling_is_worth_less_than_the_margin(unknown, margin, epochs):
    """Each doubling gains 0.6 of the one before; the last one gained 0.05."""
    last = 0.05
    # So the next doublings gain 0.03 and 0.018.
    before = last / 0.6
    curves = unknown
    curves[:, 15] = 0.0
    curves[:, 7] = last
    curves[:, 3] = last + before
    found = longer(curves, 0, margin)
    assert found.epochs == epochs


def test_unknown_epochs_ask_for_nothing(unknown):
    assert longer(unknown, 0, 0.02) == (0.0, 0.0, 16)
