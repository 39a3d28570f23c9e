"""What longer training would bring, from curves whose course is known."""

import numpy as np
import pytest

from lmzoo.lab.statistics.longer import longer

EPOCHS = np.arange(1, 17)


@pytest.mark.parametrize("margin", [0.02, 0.05])
def test_curves_that_gain_as_much_at_each_doubling(margin):
    """0.06 nats each time for one point, 0.1 for the other: the differences move by 0.04."""
    curves = np.array([3 - 0.06 * np.log2(EPOCHS), 3 - 0.1 * np.log2(EPOCHS)])
    found = longer(curves, 0, margin)
    assert found.gain == pytest.approx(0.08)
    assert found.moved == pytest.approx(0.04)
    assert found.epochs == 64, "no more than two doublings are said"
    assert longer(curves, None, margin).moved == 0


def test_the_epochs_are_those_after_which_a_doubling_is_worth_less_than_the_margin():
    """Each doubling gains 0.6 of the one before; the last one gained 0.05."""
    losses = {16: 0.0, 8: 0.05, 4: 0.05 + 0.05 / 0.6}
    curves = np.full((2, 16), np.nan)
    for epoch, loss in losses.items():
        curves[:, epoch - 1] = loss
    found = [longer(curves, 0, margin).epochs for margin in (0.031, 0.029, 0.019, 0.017)]
    assert found == [16, 32, 32, 64]


def test_unknown_epochs_ask_for_nothing():
    curves = np.full((2, 16), np.nan)
    assert longer(curves, 0, 0.02) == (0.0, 0.0, 16)
