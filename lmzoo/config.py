"""A config is a frozen, keyword-only record that is right from birth.

    @config
    class Config:
        '''How wide the state is.'''
        width: Annotated[PositiveInt, IntRange(8, 256, log=True)] = 32

An unknown field, a value out of bounds and an assignment after birth all raise.
`to_dict` and `from_dict` are inverse to each other and go through plain JSON types,
sets sorted, so equal configs have equal text and a hash of the text is an identity.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

import pydantic
from pydantic.dataclasses import dataclass

from lmzoo.errors import UserError

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only, validated record; unknown fields raise."""
    strict = pydantic.ConfigDict(extra="forbid", validate_default=True)
    return dataclass(cls, frozen=True, kw_only=True, config=strict)  # type: ignore[return-value]


def to_dict(record: Any) -> dict[str, Any]:
    """The config as plain JSON types; sets become sorted lists."""
    return _sorted_sets(pydantic.TypeAdapter(type(record)).dump_python(record, warnings="error"))


def from_dict(cls: type[T], fields: Mapping[str, Any]) -> T:
    """The config of type `cls` with these fields.

    Raises:
        UserError: a field is unknown or its value is refused; one line names both.
    """
    try:
        return pydantic.TypeAdapter(cls).validate_python(dict(fields))
    except pydantic.ValidationError as error:
        raise UserError(explain(error, cls)) from None


def explain(error: pydantic.ValidationError, cls: type | None = None) -> str:
    """A validation error in one line: field, what is wrong, the offending value."""
    known = ", ".join(field.name for field in dataclasses.fields(cls)) if cls else ""  # type: ignore[arg-type]
    return "; ".join(_explain_one(detail, known) for detail in error.errors())


def _explain_one(detail: Any, known: str) -> str:
    field = ".".join(map(str, detail["loc"]))
    if detail["type"] == "unexpected_keyword_argument":
        return f"no field {field!r}" + (f"; there are {known}" if known else "")
    cause = detail.get("ctx", {}).get("error")
    said = (
        str(cause)
        if isinstance(cause, UserError)
        else f"{detail['msg'].removeprefix('Value error, ')}, got {detail['input']!r}"
    )
    return f"{field}: {said}" if field else said


def _sorted_sets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted_sets(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_sorted_sets(item) for item in value)
    if isinstance(value, list | tuple):
        return [_sorted_sets(item) for item in value]
    return str(value) if isinstance(value, str) else value
