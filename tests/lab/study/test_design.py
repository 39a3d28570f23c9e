"""The start design covers the search space, begins with the default and ignores everything else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.lab.study.tuning import CELLS, beyond, coordinates, edges, start_design

RANGES = st.one_of(
    st.builds(FloatRange, st.floats(1e-5, 1e-2), st.floats(0.1, 10), st.booleans()),
    st.builds(IntRange, st.integers(1, 8), st.integers(32, 256), st.booleans()),
    st.just(Choice(("default", "orthogonal", "normal"))),
)
SPACES = st.dictionaries(st.sampled_from("abc"), RANGES, min_size=1)


def inside(bounds, value) -> bool:
    if isinstance(bounds, Choice):
        return value in bounds.values
    return bounds.low <= value <= bounds.high


def first(bounds):
    return bounds.values[0] if isinstance(bounds, Choice) else bounds.low


@given(SPACES, st.integers(1, 60), st.integers(0, 5))
def test_settings_are_different_and_inside_and_the_default_is_first(space, samples, seed):
    default = {path: first(bounds) for path, bounds in space.items()}
    design = start_design(space, default, samples, seed)
    assert design[0] == default
    assert 1 <= len(design) <= max(1, min(samples, max(CELLS, samples // 4)) - 1)
    assert all(a != b for i, a in enumerate(design) for b in design[:i])
    assert all(inside(space[path], x) for setting in design for path, x in setting.items())
    assert design == start_design(space, default, samples, seed)
    x = coordinates(space, design)
    assert (np.abs(x) <= 1 + 1e-9).all()
    distance = ((x - x[0]) ** 2).sum(1)
    assert (np.diff(distance) >= -1e-9).all()


@given(SPACES, st.integers(CELLS, 60))
def test_fewer_samples_leave_out_the_last_settings(space, seed):
    default = {path: first(bounds) for path, bounds in space.items()}
    design = start_design(space, default, CELLS, seed)
    for samples in range(1, CELLS):
        assert start_design(space, default, samples, seed) == design[: max(1, samples - 1)]


def test_one_range_is_divided_into_equal_cells_of_which_the_last_is_left_out():
    space = {"lr": FloatRange(1e-4, 1e1, log=True)}
    outside = start_design(space, {"lr": 50.0}, 5, 0)
    np.testing.assert_allclose([s["lr"] for s in outside], 10.0 ** np.arange(-3.5, 0), rtol=1e-3)
    replaced = start_design(space, {"lr": 0.02}, 5, 0)
    assert sorted(s["lr"] for s in replaced)[2] == 0.02


@given(st.permutations([0.001, 0.01, 0.1]), st.integers(0, 2))
def test_a_setting_beyond_is_asked_for_at_the_first_and_last_tried(rates, which):
    space = {"lr": FloatRange(1e-4, 1.0, log=True), "norm": Choice(("a", "b"))}
    tried = [{"lr": rate, "norm": "a"} for rate in rates]
    best = tried[which]
    new = beyond(space, tried, best)
    if best["lr"] == 0.01:
        assert new is None
        assert edges(space, tried, best) == []
        return
    assert edges(space, tried, best) == ["lr"]
    assert new == {"lr": 1e-4 if best["lr"] == 0.001 else 1.0, "norm": "a"}
    assert new is not None
    assert beyond(space, [*tried, new], new) is None, "the range ends there"
    assert edges(space, [*tried, new], new) == ["lr"], "and the mark says so"


def test_several_ranges_are_covered():
    """Each half of each range has at least two settings; independent ones often fail."""
    space = {name: FloatRange(0.0, 1.0) for name in "abc"}
    for seed in range(20):
        design = start_design(space, dict.fromkeys("abc", 5.0), 32, seed)
        x = coordinates(space, design)
        assert len(design) == 7
        assert (np.minimum((x < 0).sum(0), (x > 0).sum(0)) >= 2).all()
