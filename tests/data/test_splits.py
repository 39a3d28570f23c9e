import random

from hypothesis import given
from hypothesis import strategies as st

from lmzoo.data.splits import interleave, shuffled_cut
from tests.tiny import quick

sizes = st.integers(0, 60)
shares = st.lists(st.integers(1, 5), min_size=2, max_size=3).map(tuple)


@quick
@given(sizes, shares)
def test_interleave_deals_every_item_once_and_in_order(n, shares):
    parts = interleave(range(n), shares)
    assert sorted(item for part in parts for item in part) == list(range(n))
    assert all(part == sorted(part) for part in parts)
    bounds = [sum(shares[:i]) for i in range(len(shares) + 1)]
    for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
        assert all(low <= index % sum(shares) < high for index in part)


def test_interleave_4_1_holds_out_every_fifth_item():
    train, held_out = interleave(range(28_999), (4, 1))
    assert held_out == list(range(4, 28_999, 5))
    assert (len(train), len(held_out)) == (23_200, 5_799)


@quick
@given(sizes, st.floats(0, 1), st.integers(0, 2**31))
def test_shuffled_cut_deals_every_item_once(n, fraction, seed):
    first, rest = shuffled_cut(range(n), fraction, seed)
    assert sorted(first + rest) == list(range(n))
    assert len(first) == round(fraction * n)


def test_shuffled_cut_equals_the_split_of_torchtext():
    state = random.getstate()
    try:
        # S0 seeds the global generator; torchtext then draws one sample.
        random.seed(29)
        order = random.sample(range(1000), 1000)
    finally:
        random.setstate(state)
    assert shuffled_cut(range(1000), 0.8, 29) == (order[:800], order[800:])


def test_shuffled_cut_does_not_change_the_global_generator():
    state = random.getstate()
    shuffled_cut(range(50), 0.5, 1)
    assert random.getstate() == state
