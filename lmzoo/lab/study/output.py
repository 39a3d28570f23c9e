"""What a function prints: a file in the folder of its run, of which the end is kept."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmzoo.base.foreign import no_link

OUTPUT = "output.txt"
MOST = 1 << 20
"""Bytes of the file; then its first half is left out."""
LEFT_OUT = b"[earlier output is left out]\n"


class Output(io.RawIOBase):
    """The file of a run; it is made by the first byte."""

    def __init__(self, path: Path):
        self._path = path

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Return where a child process may print."""
        return 2

    def write(self, data: Any, /) -> int:
        part = bytes(data)[-MOST:]
        # A full disk must not end the training.
        with contextlib.suppress(OSError), open(self._path, "ab", opener=no_link) as file:
            # The end says why a program failed; the beginning is dropped.
            if file.tell() + len(part) > MOST:
                end = self._path.read_bytes()[-MOST // 2 :]
                whole_lines = end[end.find(b"\n") + 1 :]
                self._path.write_bytes(LEFT_OUT + whole_lines)
            file.write(part)
        return len(data)


@contextlib.contextmanager
def printed_into(folder: Path) -> Iterator[None]:
    """Write what Python code prints into a folder; what its child processes print is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    output = Output(folder / OUTPUT)
    # Unbuffered: what a function printed before it was killed is there.
    file = io.TextIOWrapper(output, "utf-8", "replace", write_through=True)  # type: ignore[arg-type]
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        yield
