"""The output of a submodule at its mean, at zero, and as on another input."""

import torch

from lmzoo.inspect.interventions import Means, Part, Recorded, at_mean, at_other, at_zero, seen

FIRST = torch.nn.Linear(3, 4)
LAST = torch.nn.Linear(4, 2)
NET = torch.nn.Sequential(FIRST, LAST)
PART = Part(module="0")

X = torch.randn(2, 5, 3)


@torch.no_grad()
def output_with(see):
    """Return the output on another input while the first layer is seen."""
    with seen(NET, see, "0"):
        return NET(X.flip(0))


@torch.no_grad()
def after_one_input(observer):
    """Return an observer that has seen the first layer on the input X."""
    with seen(NET, observer, "0"):
        NET(X)
    return observer


def test_an_output_is_replaced_by_its_mean():
    # Over all positions of all sequences.
    mean = FIRST(X).mean((0, 1))
    means = after_one_input(Means())
    found = output_with(at_mean(PART, means))
    expected = LAST(mean).expand(2, 5, 2)
    torch.testing.assert_close(found, expected)


def test_an_output_is_replaced_by_that_on_another_input():
    recorded = after_one_input(Recorded())
    found = output_with(at_other(PART, recorded))
    expected = LAST(FIRST(X))
    torch.testing.assert_close(found, expected)


def test_an_output_is_replaced_by_zero():
    found = output_with(at_zero(PART))
    bias = LAST.bias
    expected = bias.expand(2, 5, 2)
    torch.testing.assert_close(found, expected)
