"""What a function prints: a file in the folder of its run, of which the end is kept."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

OUTPUT = "output.txt"
MOST = 1 << 20
"""Bytes of the file; then its first half is left out."""
LEFT_OUT = b"[earlier output is left out]\n"


class Output(io.TextIOBase):
    """The file of a run; it is made by the first letter."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")[-MOST:]
        with contextlib.suppress(OSError), self._path.open("ab") as file:  # a full disk
            if file.tell() + len(data) > MOST:
                end = self._path.read_bytes()[-MOST // 2 :]
                self._path.write_bytes(LEFT_OUT + end[end.find(b"\n") + 1 :])
            file.write(data)
        return len(text)


@contextlib.contextmanager
def printed_into(folder: Path) -> Iterator[None]:
    """Write what Python code prints into a folder; what its child processes print is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    file = Output(folder / OUTPUT)
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        yield
