"""Sigmoid, tanh and its inverse in compiled loops, beside those of more digits."""

from typing import no_type_check

import numpy as np
import pytest

from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import atanh, exp, sigmoid, tanh


@compiled
@no_type_check
def of_all(x, out):
    for i in range(len(x)):
        out[0, i] = sigmoid(x[i])
        out[1, i] = tanh(x[i])


@compiled
@no_type_check
def powers(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


@compiled
@no_type_check
def back_from_tanh(x, out):
    for i in range(len(x)):
        out[i] = atanh(x[i])


def both(x: np.ndarray) -> np.ndarray:
    found = np.empty((2, len(x)), x.dtype)
    of_all(x, found)
    return found


def exact(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.longdouble)
    return np.stack([1 / (1 + np.exp(-x)), np.tanh(x)])


@pytest.mark.parametrize(("dtype", "units"), [(np.float32, 3), (np.float64, 4)])
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 0.1, 1.0, 10.0, 40.0])
def test_within_units_of_the_last_place(dtype: type, units: int, scale: float) -> None:
    x = (np.random.default_rng(0).uniform(-2, 2, 100_000) * scale).astype(dtype)
    expected = exact(x)
    apart = np.abs(both(x) - expected) / np.abs(expected)
    assert apart.max() <= units * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_out_they_are_what_they_tend_to(dtype: type) -> None:
    x = np.array([0, 90, 1e4, np.inf, -90, -1e4, -np.inf], dtype)
    expected = [[0.5, 1, 1, 1, 0, 0, 0], [0, 1, 1, 1, -1, -1, -1]]
    np.testing.assert_allclose(both(x), expected, atol=2e-38)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_no_number_stays_none(dtype: type) -> None:
    x = np.array([1, np.nan, 2], dtype)
    assert np.isnan(both(x)).tolist() == [[False, True, False]] * 2


@pytest.mark.parametrize(("dtype", "units"), [(np.float32, 3), (np.float64, 4)])
@pytest.mark.parametrize("most", [1e-30, 1e-4, 0.1, 0.9, 0.9999])
def test_atanh_is_within_units_of_the_last_place(dtype: type, units: int, most: float) -> None:
    x = np.random.default_rng(0).uniform(-most, most, 100_000).astype(dtype)
    x[:3] = 0, np.nan, -most
    found, expected = np.empty_like(x), np.arctanh(x.astype(np.longdouble))
    back_from_tanh(x, found)
    assert np.isnan(found[1])
    there = np.isfinite(expected) & (expected != 0)
    apart = np.abs(found - expected)[there] / np.abs(expected)[there]
    assert apart.max() <= units * np.finfo(dtype).eps


@pytest.mark.parametrize(("dtype", "units"), [(np.float32, 3), (np.float64, 4)])
@pytest.mark.parametrize("most", [1e-30, 1e-4, 0.1, 1.0, 80.0])
def test_exp_is_within_units_of_the_last_place(dtype: type, units: int, most: float) -> None:
    x = np.random.default_rng(0).uniform(-most, 0, 100_000).astype(dtype)
    x[:2] = 0, -most
    found, expected = np.empty_like(x), np.exp(x.astype(np.longdouble))
    powers(x, found)
    assert (np.abs(found - expected) / expected).max() <= units * np.finfo(dtype).eps
    assert found[0] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_far_out_is_zero(dtype: type) -> None:
    x = np.array([-1e4, -np.inf, np.nan], dtype)
    found = np.empty_like(x)
    powers(x, found)
    assert found[:2].tolist() == [0, 0]
    assert np.isnan(found[2])
