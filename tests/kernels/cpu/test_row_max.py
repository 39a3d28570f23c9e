"""The row maximum computed on the bits of floats."""

import itertools
from typing import no_type_check

import numpy as np
import pytest

from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.row_max import row_max

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@compiled
@no_type_check
def all_rows(x, out):
    row_max(x, out)


def maximum(x: np.ndarray) -> np.ndarray:
    out = np.empty(len(x), x.dtype)
    all_rows(x, out)
    return out


@DTYPES
def test_row_max_equals_numpy(dtype: type) -> None:
    for width, scale in itertools.product((1, 2, 7, 8, 33, 400), (1e-30, 1.0, 1e30)):
        x = (np.random.default_rng(width).standard_normal((50, width)) * scale).astype(dtype)
        for rows in (x, -np.abs(x), np.abs(x)):
            assert np.array_equal(maximum(rows), rows.max(1)), (width, scale)


@DTYPES
def test_infinities_and_zeros(dtype: type) -> None:
    x = np.array([[-np.inf, -1], [np.inf, 1], [-np.inf, -np.inf], [0.0, -0.0]], dtype)
    assert maximum(x).tolist() == [-1, np.inf, -np.inf, 0]


@DTYPES
def test_a_row_minus_its_maximum_keeps_nan(dtype: type) -> None:
    """Whether NaN counts as larger or smaller than all numbers, the difference has a NaN."""
    x = np.array([[1, np.nan, 2], [1, -np.nan, 2]], dtype)
    assert np.isnan(x - maximum(x)[:, None]).any(1).all()
