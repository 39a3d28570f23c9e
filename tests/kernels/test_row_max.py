"""The largest of a row, found by its bits."""

from typing import no_type_check

import numpy as np
import pytest

from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.row_max import largest

TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@compiled
@no_type_check
def of_rows(x, out):
    largest(x, out)


def found(x: np.ndarray) -> np.ndarray:
    out = np.empty(len(x), x.dtype)
    of_rows(x, out)
    return out


@TYPES
@pytest.mark.parametrize("width", [1, 2, 7, 8, 33, 400])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_it_is_numpys(dtype: type, width: int, scale: float) -> None:
    x = (np.random.default_rng(width).standard_normal((50, width)) * scale).astype(dtype)
    for rows in (x, -np.abs(x), np.abs(x)):
        assert np.array_equal(found(rows), rows.max(1))


@TYPES
def test_infinities_and_zeros_are_in_order(dtype: type) -> None:
    x = np.array([[-np.inf, -1], [np.inf, 1], [-np.inf, -np.inf], [0.0, -0.0]], dtype)
    assert found(x).tolist() == [-1, np.inf, -np.inf, 0]


@TYPES
def test_what_is_no_number_does_not_hide_behind_others(dtype: type) -> None:
    """Whichever end it is sorted to, a row less its largest has it still."""
    x = np.array([[1, np.nan, 2], [1, -np.nan, 2]], dtype)
    assert np.isnan(x - found(x)[:, None]).any(1).all()
