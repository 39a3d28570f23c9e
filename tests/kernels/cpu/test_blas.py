"""Matrix products inside kernels equal NumPy's."""

import numpy as np
import pytest

from lmzoo.kernels.cpu.blas import HAS_PRODUCTS, add_outer, product, product_transposed

B = 5
H = 3
G = 4
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def random(dtype: type, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def with_gaps(a: np.ndarray) -> np.ndarray:
    """Return a copy with gaps between the rows."""
    width = a.shape[1]
    # NaN in the gaps would show in a product that reads them.
    buffer = np.full((len(a), 2 * width + 1), np.nan, a.dtype)
    inside = buffer[:, 1 : 1 + width]
    inside[:] = a
    return inside


def test_torch_has_blas_routines():
    assert HAS_PRODUCTS


LAYOUTS = pytest.mark.parametrize("layout", [np.ascontiguousarray, with_gaps])
ROWS = pytest.mark.parametrize("rows", [B, 1])


def assert_close(actual: np.ndarray, expected: np.ndarray):
    tolerance = 1e-12
    if actual.dtype == np.float32:
        tolerance = 1e-5
    np.testing.assert_allclose(actual, expected, rtol=tolerance)


@DTYPES
@LAYOUTS
@ROWS
@pytest.mark.parametrize("beta", [0, 1, True, False])
def test_products_equal_numpy(dtype, layout, rows, beta):
    a = random(dtype, rows, H, seed=1)
    w = random(dtype, H, G)
    old = random(dtype, rows, G, seed=3)
    out = layout(old.copy())
    product(layout(a), layout(w), out, beta)
    assert_close(out, a @ w + beta * old)


@DTYPES
@LAYOUTS
@ROWS
@pytest.mark.parametrize("beta", [0, 1, True, False])
def test_transposed_products_equal_numpy(dtype, layout, rows, beta):
    d = random(dtype, rows, G, seed=2)
    w = random(dtype, H, G)
    old = random(dtype, rows, H, seed=3)
    out = layout(old.copy())
    product_transposed(layout(d), layout(w), out, beta)
    assert_close(out, d @ w.T + beta * old)


@DTYPES
@LAYOUTS
@ROWS
def test_added_outer_products_equal_numpy(dtype, layout, rows):
    a = random(dtype, rows, H, seed=1)
    d = random(dtype, rows, G, seed=2)
    old = random(dtype, H, G, seed=4)
    out = layout(old.copy())
    add_outer(layout(a), layout(d), out)
    assert_close(out, old + a.T @ d)


@DTYPES
def test_output_is_not_read_when_beta_is_zero(dtype):
    out = np.full((B, G), np.nan, dtype)
    product(random(dtype, B, H), random(dtype, H, G), out, 0)
    assert np.isfinite(out).all()
