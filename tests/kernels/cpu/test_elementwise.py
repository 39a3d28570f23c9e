"""Sigmoid, tanh, exp and atanh in kernels against NumPy in extended precision; maxima of rows."""

import numpy as np
import pytest

from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import atanh, exp, row_max, sigmoid, tanh

EITHER = pytest.mark.parametrize("dtype", [np.float32, np.float64])
DTYPES = pytest.mark.parametrize(("dtype", "units"), [(np.float32, 3), (np.float64, 4)])


SIGMOID, TANH, EXP, ATANH = range(4)
"""Rows of what the compiled function returns."""


@compiled
def every_function(x, out):
    for i in range(len(x)):
        out[SIGMOID, i] = sigmoid(x[i])
        out[TANH, i] = tanh(x[i])
        out[EXP, i] = exp(-abs(x[i]))
        out[ATANH, i] = atanh(x[i])


def found(x: np.ndarray) -> np.ndarray:
    out = np.empty((4, len(x)), x.dtype)
    every_function(x, out)
    return out


@DTYPES
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 0.1, 0.9, 0.9999, 1.0, 20.0, 80.0])
def test_functions_are_accurate(dtype, units, scale):
    x = np.random.default_rng(0).uniform(-scale, scale, 100_000).astype(dtype)
    x[0] = -scale
    wide = x.astype(np.longdouble)
    expected = {SIGMOID: 1 / (1 + np.exp(-wide)), TANH: np.tanh(wide), EXP: np.exp(-np.abs(wide))}
    if scale < 1:
        expected[ATANH] = np.arctanh(wide)
    actual = found(x)
    for function, exact in expected.items():
        used = exact != 0
        error = np.abs(actual[function] - exact)[used]
        relative = error / np.abs(exact)[used]
        assert relative.max() <= units * np.finfo(dtype).eps


LIMITS = np.array([0, 90, 1e4, np.inf, -90, -1e4, -np.inf])


@EITHER
def test_functions_have_the_right_limits(dtype):
    actual = found(LIMITS.astype(dtype))
    expected = [[0.5, 1, 1, 1, 0, 0, 0], [0, 1, 1, 1, -1, -1, -1], [1, 0, 0, 0, 0, 0, 0]]
    np.testing.assert_allclose(actual[:ATANH], expected, atol=1e-37)
    # e^-90 is a number, which the others are too small for.
    assert not actual[EXP, [2, 3, 5, 6]].any()


@EITHER
def test_nan_stays_nan(dtype):
    x = np.array([0.1, np.nan, 0.2], dtype)
    for values in found(x):
        assert np.isnan(values).tolist() == [False, True, False]


@compiled
def all_rows(x, out):
    row_max(x, out)


def maximum(x: np.ndarray) -> np.ndarray:
    out = np.empty(len(x), x.dtype)
    all_rows(x, out)
    return out


@EITHER
@pytest.mark.parametrize("width", [1, 2, 7, 8, 33, 400])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_row_max_equals_numpy(dtype, width, scale):
    drawn = np.random.default_rng(width).standard_normal((50, width))
    x = (drawn * scale).astype(dtype)
    for rows in (x, -np.abs(x), np.abs(x)):
        assert np.array_equal(maximum(rows), rows.max(1))


@EITHER
def test_infinities_and_zeros(dtype):
    x = np.array([[-np.inf, -1], [np.inf, 1], [-np.inf, -np.inf], [0.0, -0.0]], dtype)
    assert maximum(x).tolist() == [-1, np.inf, -np.inf, 0]


@EITHER
def test_a_row_minus_its_maximum_keeps_nan(dtype):
    """Whether NaN counts as larger or smaller than all numbers, the difference has a NaN."""
    x = np.array([[1, np.nan, 2], [1, -np.nan, 2]], dtype)
    assert np.isnan(x - maximum(x)[:, None]).any(1).all()
