"""Check the shapes in signatures once for each function and combination of shapes in a test.

The plugin of jaxtyping checks every call, and compiles the checks of all functions at import. A
recurrence calls the same functions at each step.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping
import torch
from torch import Tensor

CHECKED: set[Any] = set()
"""Functions and shapes that were checked in this test."""
check_always = jaxtyping.jaxtyped


def check_once(part, *, typechecker):
    """Decorate as `jaxtyping.jaxtyped`, functions that name shapes only."""
    decorate = functools.partial(check_once, typechecker=typechecker)
    if isinstance(part, (classmethod, staticmethod)):
        return type(part)(decorate(part.__func__))
    if isinstance(part, property) and part.fget:
        return property(decorate(part.fget), part.fset, part.fdel)
    if not inspect.isfunction(part):
        return check_always(part, typechecker=typechecker)
    if "Tensor, '" not in str(part.__annotations__):
        return part
    checked: Callable[..., Any] | None = None

    @functools.wraps(part)
    def call(*args, **fields):
        nonlocal checked
        # A program that is recorded has sizes that are no numbers.
        if jaxtyping.config.jaxtyping_disable or torch.compiler.is_exporting():
            return part(*args, **fields)
        key = (part, *map(shape, args), *map(shape, fields.values()))
        if key in CHECKED:
            return part(*args, **fields)
        CHECKED.add(key)
        checked = checked or check_always(part, typechecker=typechecker)
        return checked(*args, **fields)

    return call


def shape(value):
    """Return the shapes and dtypes in an argument; an object stands for itself."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, (tuple, list)):
        return tuple(map(shape, value))
    return id(value)


def install():
    """Let the import hook of the plugin, which looks up this name in each module, check once."""
    jaxtyping.jaxtyped = lambda *, typechecker: functools.partial(
        check_once, typechecker=typechecker
    )
