"""Equal results of different seeds and points."""

import pytest

from lmzoo.lab.statistics.draws import equal_draws

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("losses", "seeds", "pairs"),
    [
        ([[1.1, 1.2, 1.3], [2.1, 2.2, 2.3]], [], []),
        ([[1.1, 1.1, 1.3, 1.3], [2.1, 2.2, 2.3, 2.1]], [0], []),
        ([[1.1, 1.2, 1.3], [1.2, 1.1, 2.3]], [], [(0, 1)]),
        ([[1.1, 1.2, 1.3, 1.4], [1.1, 2.2, 2.3, 2.4]], [], []),
        ([[1.1, NAN], [NAN, 1.1], [INF, INF]], [], []),
    ],
)
def test_equal_draws_are_found(losses, seeds, pairs) -> None:
    assert equal_draws(losses) == (seeds, pairs)
