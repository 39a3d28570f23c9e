"""Normalisers: invariances, lengths, causality and finite gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.functional.normalise import Norm, normalise_sequence, normalise_vectors
from lmzoo.laws.support import assert_close
from tests.tiny import FINE, quick

SCALE_FREE = [Norm.RMS, Norm.L2, Norm.STD]
FINITE = [norm for norm in Norm if norm is not Norm.TIME_STD]


def sequence(seed: int = 0, length: int = 5) -> Tensor:
    """Three random sequences, (B, T, E)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, length, 4, dtype=torch.float64, generator=generator)


@quick
@given(st.sampled_from(SCALE_FREE), st.floats(0.1, 1e3), st.integers(0, 99))
def test_positive_scale_does_not_change_the_result(norm: Norm, scale: float, seed: int) -> None:
    x = sequence(seed)
    # `std` adds 1e-5 to its divisor, which matters less for long vectors.
    tolerance = 1e-3 if norm is Norm.STD else FINE
    found = normalise_sequence(scale * x, norm)
    assert found.allclose(normalise_sequence(x, norm), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("norm", "length"), [(Norm.RMS, 2.0), (Norm.L2, 1.0)], ids=["rms-√E", "l2-1"]
)
def test_vectors_have_the_stated_length(norm: Norm, length: float) -> None:
    found = normalise_vectors(sequence(), norm).norm(dim=-1)
    assert_close(found, torch.full_like(found, length), FINE, "length")


def test_std_gives_length_root_e_minus_one_for_zero_mean_vectors_only() -> None:
    x = sequence() * 1e3
    x = x - x.mean(-1, keepdim=True)
    found = normalise_vectors(x, Norm.STD).norm(dim=-1)
    assert_close(found, torch.full_like(found, 3**0.5), 1e-6, "length")
    assert (normalise_vectors(x + 1e3, Norm.STD).norm(dim=-1) > 2).all()


def changed_positions(norm: Norm, at: int) -> list[bool]:
    """Return which outputs change with the vector at one position."""
    x = sequence()
    changed = x.clone()
    changed[:, at] += 1
    difference = (normalise_sequence(changed, norm) - normalise_sequence(x, norm)).abs()
    return (difference.amax((0, 2)) > 0).tolist()


def test_which_positions_change_with_the_vector_at_one_position() -> None:
    for at in range(5):
        for norm in (Norm.NONE, *SCALE_FREE):
            assert changed_positions(norm, at) == [t == at for t in range(5)]
        assert changed_positions(Norm.TIME_STD_CAUSAL, at) == [t >= at for t in range(5)]
        assert all(changed_positions(Norm.TIME_STD, at))


def test_time_std_divides_by_the_standard_deviation_over_time() -> None:
    x = sequence()
    expected = x / (x.std(dim=1, keepdim=True) + 1e-10)
    assert_close(normalise_sequence(x, Norm.TIME_STD), expected, FINE, "quotient")


@quick
@given(st.integers(0, 99), st.floats(-1e3, 1e3), st.floats(1e-2, 1e3))
def test_time_std_causal_divides_by_the_standard_deviation_of_each_prefix(
    seed: int, shift: float, scale: float
) -> None:
    x = scale * sequence(seed) + shift
    stds = [x[:, : t + 1].std(dim=1) + 1e-5 for t in range(1, 5)]
    expected = x[:, 1:] / torch.stack(stds, dim=1)
    found = normalise_sequence(x, Norm.TIME_STD_CAUSAL)
    assert found[:, 1:].allclose(expected, rtol=1e-7)
    assert found[:, 0].allclose(x[:, 0], rtol=2e-5)


@pytest.mark.parametrize("norm", FINITE)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e-4])
def test_constant_inputs_have_finite_gradients(norm: Norm, value: float) -> None:
    x = torch.full((2, 5, 4), value, requires_grad=True)
    y = normalise_sequence(x, norm)
    (y * torch.randn(4, generator=torch.Generator().manual_seed(0))).sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("norm", [norm for norm in Norm if norm.over_time])
def test_time_norms_of_single_vectors_divide_by_the_vectors_own_std(norm: Norm) -> None:
    x = sequence() * 1e3
    assert_close(normalise_vectors(x, norm), x / x.std(dim=-1, keepdim=True), 1e-6, "quotient")
