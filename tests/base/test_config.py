import dataclasses
import json
from enum import StrEnum
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.config import OptionalName, config, from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.base.registry import Registry
from tests.cases import cases
from tests.tiny import quick

Colour = StrEnum("Colour", "RED BLUE ROSE GREY GOLD")


PARTS: Registry[Any] = Registry("part")


@PARTS("wheel")
class Wheel:
    @config
    class Config:
        spokes: int = pydantic.Field(8, ge=1)


@PARTS("axle")
class Axle:
    @config
    class Config:
        colours: frozenset[Colour] = frozenset()


@config
class Cart:
    """A config with one field of every kind."""

    width: int = pydantic.Field(32, ge=2)
    rate: float | None = None
    loud: bool = False
    colour: Colour = Colour.RED
    colours: frozenset[Colour] = frozenset()
    part: Annotated[Any, PARTS] = "wheel"


parts = st.one_of(
    st.builds(Wheel.Config, spokes=st.integers(1, 99)),
    st.builds(Axle.Config, colours=st.frozensets(st.sampled_from(Colour))),
)
carts = st.builds(
    Cart,
    width=st.integers(2, 999),
    rate=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    loud=st.booleans(),
    colour=st.sampled_from(Colour),
    colours=st.frozensets(st.sampled_from(Colour)),
    part=parts,
)


@quick
@given(carts)
def test_a_config_is_unchanged_by_a_json_round_trip(cart):
    assert from_dict(Cart, json.loads(json.dumps(to_dict(cart), allow_nan=False))) == cart


@cases("base/cases.toml", "wrong_fields", "fields, message")
def test_an_error_is_one_line_with_field_and_value(fields, message):
    with pytest.raises(UserError, match=message) as caught:
        from_dict(Cart, fields)
    assert "\n" not in str(caught.value)


def test_a_config_is_keyword_only_and_frozen():
    with pytest.raises(UserError):
        Axle.Config(frozenset())  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cart().width = 3  # type: ignore[misc]


def test_none_is_the_member_none_of_an_enum():
    """A command line reads `--set model.norm=none` as None."""

    class Norm(OptionalName):
        NONE = "none"
        RMS = "rms"

    @config
    class Config:
        norm: Norm = Norm.RMS

    assert from_dict(Config, {"norm": None}) == from_dict(Config, {"norm": "none"})
    with pytest.raises(UserError, match="norm"):
        from_dict(Config, {"norm": 1})
