"""What a person sees of a sweep; here, where it prints: light to import."""

import io
import sys
from collections import deque
from typing import Any

from rich.console import Console as RichConsole

LINES, WIDTH = 15, 100
"""Lines that are shown, the last ones, and letters of a line that rich may fill."""


class NotebookOutput(io.StringIO):
    """A file whose last lines are one output of the cell that runs."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES)
        self._output: Any = None

    def write(self, text: str, /) -> int:
        """Show the lines, and those before them."""
        self._lines.extend(text.rstrip("\n").splitlines())
        shown = {"text/plain": "\n".join(self._lines)}
        if self._output is None:
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            self._output = display(shown, raw=True, display_id=True)
        else:
            self._output.update(shown, raw=True)
        return len(text)


def progress_console() -> RichConsole:
    """Return where a sweep prints its progress: stderr, or one output of a notebook."""
    if "ipykernel" not in sys.modules:
        return RichConsole(stderr=True, highlight=False, soft_wrap=True)
    return RichConsole(
        file=NotebookOutput(), width=WIDTH, force_jupyter=False, highlight=False, soft_wrap=True
    )
