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
    buffer = np.full((len(a), 2 * a.shape[1] + 1), np.nan, a.dtype)
    buffer[:, 1 : 1 + a.shape[1]] = a
    return buffer[:, 1 : 1 + a.shape[1]]


def test_torch_has_blas_routines():
    assert HAS_PRODUCTS


@DTYPES
@pytest.mark.parametrize("layout", [np.ascontiguousarray, with_gaps])
@pytest.mark.parametrize("rows", [B, 1])
@pytest.mark.parametrize("beta", [0, 1, True, False])
def test_products_equal_numpy(dtype, layout, rows, beta):
    w = random(dtype, H, G)
    a = random(dtype, rows, H, seed=1)
    d = random(dtype, rows, G, seed=2)
    close = {"rtol": 1e-5 if dtype is np.float32 else 1e-12}
    for kernel, args, expected in ((product, (a, w), a @ w), (product_transposed, (d, w), d @ w.T)):
        old = random(dtype, *expected.shape, seed=3)
        out = layout(old.copy())
        kernel(*(layout(arg) for arg in args), out, beta)
        np.testing.assert_allclose(out, expected + beta * old, **close)
    old = random(dtype, H, G, seed=4)
    out = layout(old.copy())
    add_outer(layout(a), layout(d), out)
    np.testing.assert_allclose(out, old + a.T @ d, **close)


@DTYPES
def test_output_is_not_read_when_beta_is_zero(dtype):
    out = np.full((B, G), np.nan, dtype)
    product(random(dtype, B, H), random(dtype, H, G), out, 0)
    assert np.isfinite(out).all()
