"""Sigmoid, tanh, exp and atanh in kernels against NumPy in extended precision; maxima of rows."""

import numpy as np

from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import atanh, exp, row_max, sigmoid, tanh
from tests.cases import parametrize, rows

EITHER = parametrize("dtype", [np.float32, np.float64])
# Units in the last place that a function may be off.
UNITS = [(np.float32, 3), (np.float64, 4)]
DTYPES = parametrize(("dtype", "units"), UNITS)


SIGMOID, TANH, EXP, ATANH = range(4)
"""Rows of what the compiled function returns."""


@compiled
def every_function(x, out):
    for i in range(len(x)):
        out[SIGMOID, i] = sigmoid(x[i])
        out[TANH, i] = tanh(x[i])
        decay = -abs(x[i])
        out[EXP, i] = exp(decay)
        out[ATANH, i] = atanh(x[i])


def found(x):
    shape = (4, len(x))
    out = np.empty(shape, x.dtype)
    every_function(x, out)
    return out


SCALES = [1e-30, 1e-4, 0.1, 0.9, 0.9999, 1.0, 20.0, 80.0]


@DTYPES
@parametrize("scale", SCALES)
def test_functions_are_accurate(dtype, units, scale):
    generator = np.random.default_rng(0)
    drawn = generator.uniform(-scale, scale, 100_000)
    x = drawn.astype(dtype)
    # The largest argument is there for certain.
    x[0] = -scale
    wide = x.astype(np.longdouble)
    expected = {TANH: np.tanh(wide)}
    expected[EXP] = np.exp(-np.abs(wide))
    expected[SIGMOID] = 1 / (1 + np.exp(-wide))
    # atanh is finite within ±1.
    if scale < 1:
        expected[ATANH] = np.arctanh(wide)
    actual = found(x)
    for function, exact in expected.items():
        # At zero, there is no relative error.
        used = exact != 0
        error = np.abs(actual[function] - exact)
        relative = error[used] / np.abs(exact[used])
        precision = np.finfo(dtype).eps
        assert relative.max() <= units * precision


LIMITS = rows("kernels/cases.toml", "limits")


@EITHER
def test_functions_have_the_right_limits(dtype):
    x = np.array(LIMITS["at"]).astype(dtype)
    actual = found(x)
    expected = [LIMITS[name] for name in ("sigmoid", "tanh", "exp")]
    np.testing.assert_allclose(actual[:ATANH], expected, atol=1e-37)
    # e^-90 is a number, which the others are too small for.
    beyond = np.abs(x) > 90
    assert not actual[EXP, beyond].any()


@EITHER
def test_nan_stays_nan(dtype):
    x = np.array([0.1, np.nan, 0.2], dtype)
    for values in found(x):
        is_nan = np.isnan(values)
        assert is_nan.tolist() == [False, True, False]


@compiled
def all_rows(x, out):
    row_max(x, out)


def maximum(x):
    count = len(x)
    out = np.empty(count, x.dtype)
    all_rows(x, out)
    return out


@EITHER
@parametrize("width", [1, 2, 7, 8, 33, 400])
@parametrize("scale", [1e-30, 1.0, 1e30])
def test_row_max_equals_numpy(dtype, width, scale):
    generator = np.random.default_rng(width)
    drawn = generator.standard_normal((50, width))
    x = (drawn * scale).astype(dtype)
    positive = np.abs(x)
    for signed in (x, -positive, positive):
        expected = signed.max(1)
        assert np.array_equal(maximum(signed), expected)


@EITHER
def test_infinities_and_zeros(dtype):
    table = rows("kernels/cases.toml", "maxima")
    x = np.array(table["rows"], dtype)
    assert maximum(x).tolist() == table["maxima"]


@EITHER
def test_a_row_minus_its_maximum_keeps_nan(dtype):
    """Whether NaN counts as larger or smaller than all numbers, the difference has a NaN."""
    table = [[1, np.nan, 2], [1, -np.nan, 2]]
    x = np.array(table, dtype)
    largest = maximum(x)[:, None]
    is_nan = np.isnan(x - largest)
    assert is_nan.any(1).all()
