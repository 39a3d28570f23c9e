"""Arguments of the public functions: what is read, and one line for what is not.

Scalars of numpy and torch, and floats without a fraction, count as the numbers that they are.
"""

import functools
import inspect
import math
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lmzoo.base.errors import UserError

Function = TypeVar("Function", bound=Callable[..., Any])


def scalar(value: Any) -> Any:
    """Return a scalar of numpy or torch as Python's; other values as they are."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return a whole number of at least `least`, or raise a `UserError`."""
    found = scalar(value)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or found < least:
        raise UserError(f"{name} is {value!r:.60}; give a whole number of {least} or more")
    return found


def number(name: str, value: Any) -> float:
    """Return a finite number of 0 or more, or raise a `UserError`."""
    found = scalar(value)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not 0 <= found < math.inf:
        raise UserError(f"{name} is {value!r:.60}; give a number of 0 or more")
    return found


def text(name: str, value: Any) -> str:
    """Return a text, or raise a `UserError`."""
    if not isinstance(value, str):
        raise UserError(f"{name} is {value!r:.60}; give a text")
    return value


def path(name: str, value: Any) -> str:
    """Return a path as text, or raise a `UserError`."""
    if not isinstance(value, str | os.PathLike):
        raise UserError(f"{name} is {value!r:.60}; give a path")
    return os.fsdecode(value)


def called(function: Function) -> Function:
    """Make a wrong number or name of arguments a `UserError`."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            signature.bind(*given, **named)
        except TypeError as error:
            words = str(signature).partition(" ->")[0]
            raise UserError(
                f"{function.__name__}: {error}; write {function.__name__}{words}"
            ) from None
        return function(*given, **named)

    return cast(Function, call)
