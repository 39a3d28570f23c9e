"""Tiny models and their data (`lmzoo/laws/tiny.py`)."""

from hypothesis import settings
from torch import Tensor

from lmzoo import zoo
from lmzoo.laws.tiny import CLOSE as CLOSE
from lmzoo.laws.tiny import FINE as FINE
from lmzoo.laws.tiny import SAME as SAME
from lmzoo.laws.tiny import TINY_SIZES as TINY_SIZES
from lmzoo.laws.tiny import assert_close as assert_close
from lmzoo.laws.tiny import batch as batch
from lmzoo.laws.tiny import default_source as default_source
from lmzoo.laws.tiny import every_sequence as every_sequence
from lmzoo.laws.tiny import shrink as shrink
from lmzoo.laws.tiny import sources as sources
from lmzoo.laws.tiny import tiny as tiny

quick = settings(max_examples=30)
"""Few examples; `conftest.py` has what holds for all tests."""


def row_names() -> list[str]:
    """Return the rows of the zoo that can be built."""
    return [name for name in zoo.names() if zoo.row(name).model is not None]


def one_row_per_model() -> list[str]:
    """Return a row of every model class: the one with its name, if there is one."""
    rows: dict[str, str] = {}
    names = row_names()
    for name in names:
        model = zoo.row(name).model or ""
        if model in names:
            rows[model] = model
        else:
            rows[model] = rows.get(model, name)
    return list(rows.values())


def assert_equal_double(actual: Tensor, expected: Tensor):
    """Assert that both are equal up to the rounding of double precision."""
    assert_close(actual, expected, FINE, "value")


def assert_equal_single(actual: Tensor, expected: Tensor):
    """Assert that both are equal up to the rounding of single precision."""
    assert_close(actual, expected, CLOSE, "value")
