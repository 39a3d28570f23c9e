"""A progress bar for texts that take seconds to encode."""

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SHOWN_FROM = 20
"""Steps from which a bar is shown."""


def track(steps: Sequence[T]) -> Iterator[T]:
    """Yield the steps; if they are many and stderr is a terminal, show their share on it."""
    if len(steps) < SHOWN_FROM or not sys.stderr.isatty():
        yield from steps
        return
    from rich.console import Console
    from rich.progress import track as track_with_rich

    console = Console(stderr=True)
    yield from track_with_rich(steps, "encoding the text", console=console, transient=True)
