"""Normalisers: invariances, causality, gradients; the sphere; windows and orders."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.normalise import Norm, normalise_sequence, normalise_vectors
from lmzoo.functional.sequence import previous_vectors, reversed_positions
from lmzoo.laws.tiny import assert_close
from tests.tiny import FINE, quick

SCALE_FREE = [Norm.RMS, Norm.L2, Norm.STD]
FINITE = [norm for norm in Norm if norm is not Norm.TIME_STD]


def sequence(seed: int = 0, length: int = 5) -> Tensor:
    """Three random sequences, (B, T, E)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, length, 4, dtype=torch.float64, generator=generator)


@quick
@given(st.sampled_from(SCALE_FREE), st.floats(0.1, 1e3), st.integers(0, 99))
def test_positive_scale_does_not_change_the_result(norm, scale, seed):
    x = sequence(seed)
    # `std` adds 1e-5 to its divisor, which matters less for long vectors.
    tolerance = FINE
    if norm is Norm.STD:
        tolerance = 1e-3
    found = normalise_sequence(scale * x, norm)
    assert found.allclose(normalise_sequence(x, norm), rtol=tolerance, atol=tolerance)


LENGTHS = {Norm.RMS: 2.0, Norm.L2: 1.0, Norm.STD: 3**0.5}
"""Lengths of normalised vectors of four channels."""


@pytest.mark.parametrize("norm", LENGTHS)
def test_vectors_have_the_stated_length(norm):
    x = sequence() * 1e3
    centred = x - x.mean(-1, keepdim=True)
    found = normalise_vectors(centred, norm).norm(dim=-1)
    expected = torch.full_like(found, LENGTHS[norm])
    assert_close(found, expected, 1e-6, "length")


@pytest.mark.parametrize("norm", LENGTHS)
def test_only_std_does_not_remove_the_mean(norm):
    x = sequence() * 1e3
    moved = x - x.mean(-1, keepdim=True) + 1e3
    length = normalise_vectors(moved, norm).norm(dim=-1)
    expected = torch.full_like(length, LENGTHS[norm])
    assert length.allclose(expected) == (norm is not Norm.STD)


MOVED = given(st.integers(0, 99), st.floats(-1e3, 1e3), st.floats(1e-2, 1e3))


@quick
@MOVED
def test_the_causal_time_norm_divides_by_the_standard_deviation_of_each_prefix(seed, shift, scale):
    x = scale * sequence(seed) + shift
    found = normalise_sequence(x, Norm.TIME_STD_CAUSAL)
    for t in range(1, 5):
        std = x[:, : t + 1].std(dim=1) + 1e-5
        assert found[:, t].allclose(x[:, t] / std, rtol=1e-7)
    assert found[:, 0].allclose(x[:, 0], rtol=2e-5)


@quick
@MOVED
def test_the_time_norm_divides_by_the_standard_deviation_of_all(seed, shift, scale):
    x = scale * sequence(seed) + shift
    std = x.std(dim=1, keepdim=True) + 1e-10
    assert normalise_sequence(x, Norm.TIME_STD).allclose(x / std)


@pytest.mark.parametrize("norm", FINITE)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e-4])
def test_constant_inputs_have_finite_gradients(norm, value):
    x = torch.full((2, 5, 4), value, requires_grad=True)
    y = normalise_sequence(x, norm)
    weights = torch.randn(4, generator=torch.Generator().manual_seed(0))
    (y * weights).sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("norm", [norm for norm in Norm if norm.over_time])
def test_time_norms_of_single_vectors_divide_by_the_vectors_own_std(norm):
    x = sequence() * 1e3
    expected = x / x.std(dim=-1, keepdim=True)
    assert_close(normalise_vectors(x, norm), expected, 1e-6, "quotient")


@quick
@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from([1.0, 0.5]))
def test_previous_vectors_are_nearest_first_and_padded_before_the_start(length, count, pad):
    x = torch.randn(2, length, 3)
    found = previous_vectors(x, count, pad=pad)
    assert found.shape == (2, length, count, 3)
    for t in range(length):
        for j in range(count):
            expected = torch.full((2, 3), pad)
            if t >= j:
                expected = x[:, t - j]
            assert found[:, t, j].equal(expected)


LENGTHS_TO_REVERSE = torch.tensor([5, 2, 1, 4])


def test_all_words_are_reversed():
    found = reversed_positions(LENGTHS_TO_REVERSE, 5, keep_last=False)
    assert found.tolist() == [[0, 4, 3, 2, 1], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 3, 2, 1, 4]]


def test_an_end_token_stays_last():
    found = reversed_positions(LENGTHS_TO_REVERSE, 5, keep_last=True)
    assert found.tolist() == [[0, 3, 2, 1, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 2, 1, 3, 4]]
