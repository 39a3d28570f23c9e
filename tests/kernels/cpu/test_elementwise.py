"""Sigmoid, tanh, atanh and exp in kernels against NumPy in extended precision."""

from typing import no_type_check

import numpy as np
import pytest

from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import atanh, exp, sigmoid, tanh


@compiled
@no_type_check
def sigmoid_and_tanh(x, out):
    for i in range(len(x)):
        out[0, i] = sigmoid(x[i])
        out[1, i] = tanh(x[i])


@compiled
@no_type_check
def all_exp(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


@compiled
@no_type_check
def all_atanh(x, out):
    for i in range(len(x)):
        out[i] = atanh(x[i])


def both(x: np.ndarray) -> np.ndarray:
    found = np.empty((2, len(x)), x.dtype)
    sigmoid_and_tanh(x, found)
    return found


def exact(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.longdouble)
    return np.stack([1 / (1 + np.exp(-x)), np.tanh(x)])


@pytest.mark.parametrize(("dtype", "units"), [(np.float32, 3), (np.float64, 4)])
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 0.1, 1.0, 10.0, 40.0])
def test_sigmoid_and_tanh_are_accurate(dtype: type, units: int, scale: float) -> None:
    x = (np.random.default_rng(0).uniform(-2, 2, 100_000) * scale).astype(dtype)
    expected = exact(x)
    error = np.abs(both(x) - expected) / np.abs(expected)
    assert error.max() <= units * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_and_tanh_have_the_right_limits(dtype: type) -> None:
    x = np.array([0, 90, 1e4, np.inf, -90, -1e4, -np.inf], dtype)
    expected = [[0.5, 1, 1, 1, 0, 0, 0], [0, 1, 1, 1, -1, -1, -1]]
    np.testing.assert_allclose(both(x), expected, atol=2e-38)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_stays_nan(dtype: type) -> None:
    x = np.array([1, np.nan, 2], dtype)
    assert np.isnan(both(x)).tolist() == [[False, True, False]] * 2


@pytest.mark.parametrize(("dtype", "units"), [(np.float32, 3), (np.float64, 4)])
@pytest.mark.parametrize("most", [1e-30, 1e-4, 0.1, 0.9, 0.9999])
def test_atanh_is_accurate(dtype: type, units: int, most: float) -> None:
    x = np.random.default_rng(0).uniform(-most, most, 100_000).astype(dtype)
    x[:3] = 0, np.nan, -most
    found, expected = np.empty_like(x), np.arctanh(x.astype(np.longdouble))
    all_atanh(x, found)
    assert np.isnan(found[1])
    valid = np.isfinite(expected) & (expected != 0)
    error = np.abs(found - expected)[valid] / np.abs(expected)[valid]
    assert error.max() <= units * np.finfo(dtype).eps


@pytest.mark.parametrize(("dtype", "units"), [(np.float32, 3), (np.float64, 4)])
@pytest.mark.parametrize("most", [1e-30, 1e-4, 0.1, 1.0, 80.0])
def test_exp_is_accurate(dtype: type, units: int, most: float) -> None:
    x = np.random.default_rng(0).uniform(-most, 0, 100_000).astype(dtype)
    x[:2] = 0, -most
    found, expected = np.empty_like(x), np.exp(x.astype(np.longdouble))
    all_exp(x, found)
    assert (np.abs(found - expected) / expected).max() <= units * np.finfo(dtype).eps
    assert found[0] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_of_large_negative_numbers_is_zero(dtype: type) -> None:
    x = np.array([-1e4, -np.inf, np.nan], dtype)
    found = np.empty_like(x)
    all_exp(x, found)
    assert found[:2].tolist() == [0, 0]
    assert np.isnan(found[2])
