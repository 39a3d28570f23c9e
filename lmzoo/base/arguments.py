"""Arguments of the public functions: what is read, and one line for what is not.

Scalars of numpy and torch, and floats without a fraction, count as the numbers that they are.
"""

import errno
import functools
import inspect
import math
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lmzoo.base.docstrings import documented
from lmzoo.base.errors import UserError, near

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made")
MOST = 1 << 63
"""What torch has no integer for."""


def scalar(value: Any) -> Any:
    """Return a scalar of numpy or torch as Python's; other values as they are."""
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return a whole number of at least `least`, or raise a `UserError`."""
    found = scalar(value)
    # 1e3 is a usual way to write 1000.
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found < MOST:
        raise UserError(f"{name} is {value!r:.60}; give a whole number of {least} or more")
    return found


def number(name: str, value: Any) -> float:
    """Return a finite number of 0 or more, or raise a `UserError`."""
    found = scalar(value)
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found < math.inf:
        raise UserError(f"{name} is {value!r:.60}; give a number of 0 or more")
    return found


def text(name: str, value: Any) -> str:
    """Return a text, or raise a `UserError`."""
    if not isinstance(value, str):
        raise UserError(f"{name} is {value!r:.60}; give a text")
    return value


def path(name: str, value: Any) -> str:
    """Return a path as text, or raise a `UserError`."""
    if not isinstance(value, str | os.PathLike) or "\0" in os.fsdecode(value):
        raise UserError(f"{name} is {value!r:.60}; give a path")
    return os.fsdecode(value)


def texts(name: str, value: Any):
    """Raise a `UserError` unless the value is a list or tuple of texts."""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return
    raise UserError(f"{name} is {value!r:.60}; give a list of texts")


def called(function: Function, name: str = "") -> Function:
    """Make a wrong number or name of arguments, no flag, or an impossible path a `UserError`."""
    signature = inspect.signature(function)
    known = []
    flags = set()
    for parameter in signature.parameters.values():
        if parameter.name != "self":
            known.append(parameter.name)
        if parameter.annotation in (bool, "bool"):
            flags.add(parameter.name)
    if not name:
        name = function.__name__

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            found = signature.bind(*given, **named).arguments
        except TypeError as error:
            unknown = [given_name for given_name in named if given_name not in known]
            hint = ""
            if unknown:
                # Python names the argument, but no similar one.
                hint = near(unknown[0], known)
            raise UserError(f"{name}: {error}{hint}; write {name}({', '.join(known)})") from None
        for flag in flags & found.keys():
            if not isinstance(scalar(found[flag]), bool):
                raise UserError(f"{flag} is {found[flag]!r:.60}; give True or False")
        try:
            return function(*given, **named)
        except OSError as error:
            # Other errors of the disk are said where the file is opened.
            if error.errno == errno.ENAMETOOLONG:
                raise UserError(f"{name}: no file has such a name: {error.filename:.60}") from None
            raise

    return cast(Function, call)


def constructed(cls: type[Made]) -> type[Made]:
    """Make a wrong number or name of a dataclass's fields a `UserError`; `help` has the fields."""
    cls.__init__ = called(cls.__init__, cls.__name__)
    return documented(cls)
