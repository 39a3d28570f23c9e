"""Configs: frozen, keyword-only dataclasses that validate their fields.

    @config
    class Config:
        '''Size of the model.'''
        width: Annotated[PositiveInt, IntRange(8, 256, log=True)] = 32

An unknown field, an invalid value and an assignment to a field raise an error. `to_dict` and
`from_dict` are inverse to each other. They use plain JSON types with sorted sets, so equal configs
give equal JSON, and its hash identifies the config.
"""

import dataclasses
import functools
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar, dataclass_transform

import pydantic
from pydantic.dataclasses import dataclass

from lmzoo.base.errors import UserError, near
from lmzoo.base.plain import Fields, FieldsDict

T = TypeVar("T")


class OptionalName(StrEnum):
    """Base class of enums with a member NONE = "none", which may be given as None.

    A command line reads `--set model.norm=none` as None.
    """

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if value is None:
            return cls("none")
        return None


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only dataclass with validated fields."""
    strict = pydantic.ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)
    cls._refuse_bools = _refuse_bools  # type: ignore[attr-defined]
    made: Any = dataclass(cls, frozen=True, kw_only=True, config=strict)
    validate = made.__init__

    @functools.wraps(validate)
    def checked(self: T, *given: Any, **fields: Any):
        try:
            validate(self, *given, **fields)
        except pydantic.ValidationError as error:
            raise UserError(f"{cls.__name__}: {explain(error, made)}") from None
        except TypeError as error:  # of a frame that is compared with a name
            raise UserError(f"{cls.__name__}: {error}") from None

    # A wrong field is bad input, not an error of the program.
    made.__init__ = checked
    return made


@pydantic.model_validator(mode="wrap")
@classmethod
def _refuse_bools(cls: type, data: Any, validate: Any) -> Any:
    """Refuse `lr=true`, which Python takes for 1."""
    made = validate(data)
    given = data
    if not isinstance(data, Mapping):  # the arguments of a constructor
        given = getattr(data, "kwargs", None)
    if given is None:
        return made
    for name, value in given.items():
        if isinstance(value, bool) and type(getattr(made, name)) in (int, float):
            raise UserError(f"{name}: a number is needed, got {str(value).lower()}")
    return made


def to_dict(config: Any) -> FieldsDict:
    """Return the fields as plain JSON types; sets become sorted lists."""
    return _sorted_sets(_adapter(type(config)).dump_python(config, warnings="error"))


def add_defaults(config: Any, fields: Fields) -> FieldsDict:
    """Return a config's plain `fields` with those that `to_dict` leaves out at their defaults."""
    result = dict(fields)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        # A part in a part has defaults, too.
        if dataclasses.is_dataclass(value):
            result[field.name] = add_defaults(value, result[field.name])
        else:
            result.setdefault(field.name, value)
    return result


def from_dict(cls: type[T], fields: Fields) -> T:
    """Return the config of type `cls` with these fields.

    A `UserError` names a field that is unknown or has an invalid value.
    """
    try:
        return _adapter(cls).validate_python(dict(fields))
    except pydantic.ValidationError as error:
        raise UserError(explain(error, cls)) from None


def explain(error: pydantic.ValidationError, cls: type | None = None) -> str:
    """Return a validation error as one line: the field, what is wrong, and the value."""
    known = None
    if cls:
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return "; ".join(_explain_detail(detail, known) for detail in error.errors())


_adapter = functools.cache(pydantic.TypeAdapter)


def _explain_detail(detail: Any, known: list[str] | None) -> str:
    field = ".".join(map(str, detail["loc"]))
    if detail["type"] == "unexpected_keyword_argument":
        hint = near(field, known or ())
        if known == []:
            hint = "; it has no fields"
        return f"no field {field!r}{hint}"
    # A message of ours says what to do; pydantic wraps it.
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        message = str(cause)
    elif detail["type"] == "int_parsing_size":
        message = f"an integer has at most 64 bits, got {detail['input']!r}"
    else:
        message = f"{detail['msg'].removeprefix('Value error, ')}, got {detail['input']!r}"
    if field:
        return f"{field}: {message}"
    return message


def _sorted_sets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted_sets(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        # Equal configs must have equal JSON.
        return sorted(_sorted_sets(item) for item in value)
    if isinstance(value, list | tuple):
        return [_sorted_sets(item) for item in value]
    if isinstance(value, str):  # a member of an enum, too
        return str(value)
    return value
