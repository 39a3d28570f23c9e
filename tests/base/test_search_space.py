import math
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmzoo.zoo  # noqa: F401  registers every model
from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange, near_bound, parse_range, ranges
from lmzoo.contract import MODELS
from tests.tiny import quick

NUMBERS = st.integers() | st.floats(-1e9, 1e9)


@quick
@given(NUMBERS, NUMBERS, st.booleans())
def test_two_bounds_give_a_range(low, high, log):
    kind = FloatRange
    if isinstance(low, int) and isinstance(high, int):
        kind = IntRange
    text = f"{low!r}:{high!r}" + ":log" * log
    if low < high and (low > 0 or not log):
        assert parse_range(text) == kind(low, high, log=log)
    else:
        with pytest.raises(UserError, match="search range"):
            parse_range(text)


def test_commas_give_a_choice_of_typed_values():
    assert parse_range("8,1e-2,rms,true,False,none") == Choice((8, 0.01, "rms", True, False, None))


@pytest.mark.parametrize(
    "text", ["", "8", "8:", ":8", "a:b", "1:2:lin", "1:2:log:3", "2:1", "nan:1", "0:8:log"]
)
def test_an_invalid_range_is_an_error_with_the_text(text):
    with pytest.raises(UserError, match=r"low:high|lower one|above 0") as caught:
        parse_range(text)
    assert repr(text) in str(caught.value)


def test_ranges_returns_the_ranges_of_annotated_fields():
    @config
    class Config:
        width: Annotated[int, IntRange(8, 64, log=True)] = 8
        rate: Annotated[float, "not a range", FloatRange(0.0, 1.0)] = 0.5
        norm: Annotated[str, Choice(("a", "b"))] = "a"
        depth: int = 1

    assert ranges(Config) == {
        "width": IntRange(8, 64, log=True),
        "rate": FloatRange(0.0, 1.0),
        "norm": Choice(("a", "b")),
    }


def test_every_bound_of_a_search_range_is_a_valid_value():
    for cls in (model.Config for model in MODELS.values()):
        for field, range_ in ranges(cls).items():
            choice = isinstance(range_, Choice)
            for value in range_.values if choice else (range_.low, range_.high):
                assert getattr(cls(**{field: value}), field) == value, (cls, field)


@quick
@given(st.floats(0, 1), st.booleans())
def test_near_bound_means_within_two_percent_of_the_range(share, log):
    range_ = FloatRange(1e-4, 1e-1, log=log)
    if log:
        value = 10 ** (-4 + 3 * share)
    else:
        value = 1e-4 + share * (1e-1 - 1e-4)
    distance = min(share, 1 - share)
    if not math.isclose(distance, 0.02, abs_tol=1e-9):
        assert near_bound(value, range_) == (distance < 0.02)
    assert not near_bound(8, Choice((8, 16))), "a choice has no bounds"
    assert near_bound(8, IntRange(8, 16))
