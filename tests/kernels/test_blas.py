"""Products inside compiled loops are NumPy's, whatever rows they are given."""

import numpy as np
import pytest

from lmzoo.kernels.cpu.blas import FOUND, back, outer, product

B, H, G = 5, 3, 4
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def numbers(dtype: type, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def apart(a: np.ndarray) -> np.ndarray:
    """The same numbers in rows that lie apart."""
    room = np.full((len(a), 2 * a.shape[1] + 1), np.nan, a.dtype)
    room[:, 1 : 1 + a.shape[1]] = a
    return room[:, 1 : 1 + a.shape[1]]


def test_torch_brings_products() -> None:
    assert FOUND


@TYPES
@pytest.mark.parametrize("laid", [np.ascontiguousarray, apart])
@pytest.mark.parametrize("rows", [B, 1])
@pytest.mark.parametrize("keep", [0, 1, True, False])
def test_every_product_is_numpys(dtype: type, laid: object, rows: int, keep: int) -> None:
    w, a, d = numbers(dtype, H, G), numbers(dtype, rows, H, seed=1), numbers(dtype, rows, G, seed=2)
    close = {"rtol": 1e-5 if dtype is np.float32 else 1e-12}
    for call, given, expected in (
        (product, (a, w), a @ w),
        (back, (d, w), d @ w.T),
    ):
        old = numbers(dtype, *expected.shape, seed=3)
        out = laid(old.copy())
        call(*(laid(one) for one in given), out, keep)
        np.testing.assert_allclose(out, expected + keep * old, **close)
    old = numbers(dtype, H, G, seed=4)
    out = laid(old.copy())
    outer(laid(a), laid(d), out)
    np.testing.assert_allclose(out, old + a.T @ d, **close)


@TYPES
def test_what_was_there_is_not_read_unless_it_is_kept(dtype: type) -> None:
    out = np.full((B, G), np.nan, dtype)
    product(numbers(dtype, B, H), numbers(dtype, H, G), out, 0)
    assert np.isfinite(out).all()
