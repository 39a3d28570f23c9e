"""The output of a submodule at its mean, at zero, and as on another input."""

import torch

from lmzoo.inspect.interventions import Means, Part, Recorded, at_mean, at_other, at_zero, seen

FIRST = torch.nn.Linear(3, 4)
LAST = torch.nn.Linear(4, 2)
NET = torch.nn.Sequential(FIRST, LAST)
PART = Part(module="0")


@torch.no_grad()
def test_the_output_of_a_submodule_is_replaced():
    x = torch.randn(2, 5, 3)
    means = Means()
    recorded = Recorded()
    for see in (means, recorded):
        with seen(NET, see, "0"):
            NET(x)
    mean = FIRST(x).flatten(0, 1).mean(0)
    wanted = (LAST(mean).expand(2, 5, 2), LAST(FIRST(x)), LAST.bias.expand(2, 5, 2))
    replaced = (at_mean(PART, means), at_other(PART, recorded), at_zero(PART))
    for see, expected in zip(replaced, wanted, strict=True):
        with seen(NET, see, "0"):
            found = NET(x.flip(0))
        torch.testing.assert_close(found, expected)
