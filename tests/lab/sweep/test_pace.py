"""The pace tells slow workers from shapes that take long."""

import pytest

from lmzoo.lab.sweep.fleet.costs import Pace


def after(epochs, seconds, sizes=(1,)):
    """Return the pace after epochs of all shapes on all workers; seconds(worker, shape, size)."""
    pace = Pace()
    for i in range(epochs):
        for worker in "wxyz":
            for shape in "ab":
                size = sizes[i % len(sizes)]
                pace.add(shape, size, seconds(worker, shape, size), worker=worker)
    return pace


def test_a_slow_worker_is_slow_with_every_shape():
    pace = after(12, lambda worker, shape, size: (4 if worker == "w" else 1) * (1 + (shape == "b")))
    for worker, seconds in zip("wxyz?", (8, 2, 2, 2, 2), strict=True):
        expected = pace.slowness(worker) * pace.cost("b", 1.0).seconds(1)
        assert expected == pytest.approx(seconds, rel=0.1), worker


def test_a_shape_that_takes_long_makes_nobody_slow():
    pace = after(12, lambda worker, shape, size: 10 if shape == "b" else 1)
    slowness = [pace.slowness(worker) for worker in "wxyz"]
    assert max(slowness) == pytest.approx(min(slowness), rel=0.01)


def test_a_shape_of_one_worker_only_is_half_its_own_fault():
    pace = Pace()
    for _ in range(6):
        pace.add("a", 1, 1.0, worker="x")
        pace.add("b", 1, 4.0, worker="w")
    assert 1.5 < pace.slowness("w") / pace.slowness("x") < 4
    for _ in range(6):
        pace.add("b", 1, 4.0, worker="x")  # the other worker needs as long
        pace.add("b", 1, 4.0, worker="w")
    assert pace.slowness("w") / pace.slowness("x") == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_packs_of_two_sizes_tell_what_a_larger_pack_costs(slope):
    pace = after(12, lambda _, shape, size: 2 * (1 + slope * (size - 1)), sizes=(1, 4))
    cost = pace.cost("a", 0.3)
    assert (cost.seconds(1), cost.seconds(8)) == pytest.approx((2, 2 * (1 + 7 * slope)), rel=0.05)


def test_of_one_size_the_assumption_decides():
    pace = after(3, lambda *_: 2.0, sizes=(4,))
    assert pace.cost("a", 1.0).seconds(8) == pytest.approx(4.0)
    assert pace.cost("a", 0.0).seconds(8) == pytest.approx(2.0)


def test_an_epoch_that_lasts_too_long_makes_a_worker_slow_before_it_ends():
    pace = Pace()
    version = pace.version
    pace.late("w", 3.0)
    assert (pace.slowness("w"), pace.version) == (3.0, version + 1)
    pace.late("w", 2.0)
    assert pace.slowness("w") == 3.0
