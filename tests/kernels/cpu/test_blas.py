"""Matrix products inside kernels equal NumPy's."""

import numpy as np

from lmzoo.kernels.cpu.blas import HAS_PRODUCTS, add_outer, product, product_transposed
from tests.cases import parametrize

B = 5
H = 3
G = 4
DTYPES = parametrize("dtype", [np.float32, np.float64])


def random(dtype, *shape, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal(shape).astype(dtype)


def with_gaps(a):
    """Return a copy with gaps between the rows."""
    width = a.shape[1]
    # NaN in the gaps would show in a product that reads them.
    shape = (len(a), 2 * width + 1)
    buffer = np.full(shape, np.nan, a.dtype)
    inside = buffer[:, 1 : 1 + width]
    inside[:] = a
    return inside


def test_torch_has_blas_routines():
    assert HAS_PRODUCTS


LAYOUTS = parametrize("layout", [np.ascontiguousarray, with_gaps])
ROWS = parametrize("rows", [B, 1])
BETAS = parametrize("beta", [0, 1, True, False])


def assert_close(actual, expected):
    tolerance = 1e-12
    if actual.dtype == np.float32:
        tolerance = 1e-5
    np.testing.assert_allclose(actual, expected, rtol=tolerance)


@DTYPES
@LAYOUTS
@ROWS
@BETAS
def test_products_equal_numpy(dtype, layout, rows, beta):
    a = random(dtype, rows, H, seed=1)
    w = random(dtype, H, G)
    old = random(dtype, rows, G, seed=3)
    # A product with β adds to what is there.
    out = layout(old.copy())
    product(layout(a), layout(w), out, beta)
    expected = a @ w + beta * old
    assert_close(out, expected)


@DTYPES
@LAYOUTS
@ROWS
@BETAS
def test_transposed_products_equal_numpy(dtype, layout, rows, beta):
    d = random(dtype, rows, G, seed=2)
    w = random(dtype, H, G)
    old = random(dtype, rows, H, seed=3)
    out = layout(old.copy())
    product_transposed(layout(d), layout(w), out, beta)
    expected = d @ w.T + beta * old
    assert_close(out, expected)


@DTYPES
@LAYOUTS
@ROWS
def test_added_outer_products_equal_numpy(dtype, layout, rows):
    a = random(dtype, rows, H, seed=1)
    d = random(dtype, rows, G, seed=2)
    old = random(dtype, H, G, seed=4)
    out = layout(old.copy())
    add_outer(layout(a), layout(d), out)
    expected = old + a.T @ d
    assert_close(out, expected)


@DTYPES
def test_output_is_not_read_when_beta_is_zero(dtype):
    # NaN times zero would be NaN.
    out = np.full((B, G), np.nan, dtype)
    a = random(dtype, B, H)
    w = random(dtype, H, G)
    product(a, w, out, 0)
    assert np.isfinite(out).all()
