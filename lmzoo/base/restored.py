"""What a command sets in its process and restores, also after an error. Standard library only."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment in this block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        _set(before)


def restore_variables(before: Mapping[str, str]):
    """Give the environment all its variables of before; the others keep their place in memory."""
    names = dict(os.environ) | dict(before)
    _set({name: before.get(name) for name in names})


def _set(values: Mapping[str, str | None]):
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        # An unchanged variable keeps its place, to which C code may point.
        elif os.environ.get(name) != value:
            os.environ[name] = value


@contextlib.contextmanager
def quiet(*names: str, level: int = logging.WARNING) -> Iterator[None]:
    """Log nothing below a level in this block, by the loggers of other packages."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, its_level in zip(loggers, before, strict=True):
            logger.setLevel(its_level)
