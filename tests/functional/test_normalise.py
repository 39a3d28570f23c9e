"""Normalisers: invariances, causality, gradients; the sphere; windows and orders."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.functional.normalise import Norm, normalise_sequence, normalise_vectors
from lmzoo.functional.sequence import previous_vectors, reversed_positions
from lmzoo.laws.tiny import assert_close
from tests.cases import parametrize, rows
from tests.functional.forms import normal
from tests.tiny import FINE, quick

FINITE = [norm for norm in Norm if norm is not Norm.TIME_STD]


def sequence(seed=0):
    """Three random sequences, (B, T, E)."""
    (x,) = normal(seed, (3, 5, 4))
    return x


NORMS = st.sampled_from([Norm.RMS, Norm.L2, Norm.STD])
SCALES = st.floats(0.1, 1e3)
SEEDS = st.integers(0, 99)


@quick
@given(NORMS, SCALES, SEEDS)
def test_positive_scale_does_not_change_the_result(norm, scale, seed):
    x = sequence(seed)
    # `std` adds 1e-5 to its divisor, which matters less for long vectors.
    tolerance = FINE
    if norm is Norm.STD:
        tolerance = 1e-3
    found = normalise_sequence(scale * x, norm)
    expected = normalise_sequence(x, norm)
    assert found.allclose(expected, rtol=tolerance, atol=tolerance)


LENGTHS = {Norm.RMS: 2.0, Norm.L2: 1.0, Norm.STD: 3**0.5}
"""Lengths of normalised vectors of four channels."""


def centred():
    """Return long vectors with a mean of zero."""
    x = 1e3 * sequence()
    return x - x.mean(-1, keepdim=True)


@parametrize("norm", LENGTHS)
def test_vectors_have_the_stated_length(norm):
    # Long vectors, for which an ε in a divisor does not matter.
    found = normalise_vectors(centred(), norm).norm(dim=-1)
    expected = torch.full_like(found, LENGTHS[norm])
    assert_close(found, expected, 1e-6, "length")


@parametrize("norm", LENGTHS)
def test_only_std_does_not_remove_the_mean(norm):
    moved = centred() + 1e3
    length = normalise_vectors(moved, norm).norm(dim=-1)
    expected = torch.full_like(length, LENGTHS[norm])
    is_kept = length.allclose(expected)
    assert is_kept == (norm is not Norm.STD)


SHIFTS = st.floats(-1e3, 1e3)
MOVED = given(SEEDS, SHIFTS, st.floats(1e-2, 1e3))


@quick
@MOVED
def test_the_causal_time_norm_divides_by_the_standard_deviation_of_each_prefix(seed, shift, scale):
    x = scale * sequence(seed) + shift
    found = normalise_sequence(x, Norm.TIME_STD_CAUSAL)
    for t in range(1, 5):
        prefix = x[:, : t + 1]
        std = prefix.std(dim=1) + 1e-5
        expected = x[:, t] / std
        assert found[:, t].allclose(expected, rtol=1e-7)
    # One vector has no deviation.
    first = found[:, 0]
    assert first.allclose(x[:, 0], rtol=2e-5)


@quick
@MOVED
def test_the_time_norm_divides_by_the_standard_deviation_of_all(seed, shift, scale):
    x = scale * sequence(seed) + shift
    std = x.std(dim=1, keepdim=True) + 1e-10
    found = normalise_sequence(x, Norm.TIME_STD)
    assert found.allclose(x / std)


@parametrize("norm", FINITE)
@parametrize("value", [0.0, 1.0, -3.0, 1e-4])
def test_constant_inputs_have_finite_gradients(norm, value):
    x = torch.full((2, 5, 4), value, requires_grad=True)
    y = normalise_sequence(x, norm)
    total = (y * torch.randn(4)).sum()
    total.backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


OVER_TIME = [norm for norm in Norm if norm.over_time]


@parametrize("norm", OVER_TIME)
def test_time_norms_of_single_vectors_divide_by_the_vectors_own_std(norm):
    x = 1e3 * sequence()
    std = x.std(dim=-1, keepdim=True)
    expected = x / std
    actual = normalise_vectors(x, norm)
    assert_close(actual, expected, 1e-6, "quotient")


PADS = st.sampled_from([1.0, 0.5])


@quick
@given(st.integers(1, 6), st.integers(1, 7), PADS)
def test_previous_vectors_are_nearest_first_and_padded_before_the_start(length, count, pad):
    x = torch.randn(2, length, 3)
    found = previous_vectors(x, count, pad=pad)
    assert found.shape == (2, length, count, 3)
    for t in range(length):
        for j in range(count):
            expected = torch.full((2, 3), pad)
            if t >= j:
                expected = x[:, t - j]
            vector = found[:, t, j]
            assert vector.equal(expected)


REVERSED = rows("functional/cases.toml", "reversed")


@parametrize("keep_last", [False, True])
def test_words_are_reversed_and_an_end_may_stay_last(keep_last):
    lengths = torch.tensor(REVERSED["lengths"])
    found = reversed_positions(lengths, 5, keep_last=keep_last)
    expected = "words"
    if keep_last:
        expected = "words_before_an_end"
    assert found.tolist() == REVERSED[expected]
