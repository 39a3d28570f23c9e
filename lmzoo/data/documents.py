"""Documents of a text, which a split keeps whole.

    a folder            every file is a document; files are in the order of their paths
    documents=true      a document ends at a blank line, too

The three splits are consecutive runs of documents. They end at those ends of documents that are
nearest to the ends of shares of the text, so that the order of the documents is that of the text
and no document is in two splits. Each split has at least one document.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lmzoo.base.errors import UserError
from lmzoo.data.files import COMPRESSED, Reading, read_bytes, read_text

BLANK_LINES = re.compile(rb"\n(?:[ \t\r]*\n)+")
Documents = Annotated[bool, Field(exclude_if=lambda whole: not whole)]
"""A config field: blank lines end documents. False is not written into configs."""


@dataclass(frozen=True)
class DocumentText:
    """The bytes of a text, and the ends of its documents."""

    text: bytes
    ends: Sequence[int]
    """The first byte after each document, in order; empty if the text may be cut anywhere."""

    def split(self, path: Path, shares: tuple[float, float]) -> list[memoryview]:
        """Return the documents that train, validate and test.

        Args:
            path: The path of the text, for errors.
            shares: Where training and validation end, as shares of the text, such as (0.8, 0.9).

        Raises:
            UserError: There are fewer than three documents.
        """
        if len(self.ends) < 3:
            raise UserError(
                f"{path} has {len(self.ends)} documents, and three splits need at least 3; give "
                "more documents, or a file without corpus.documents"
            )
        places, before = [0], 0
        for share, after in zip(shares, (2, 1), strict=True):
            allowed = self.ends[before : len(self.ends) - after]
            before += 1 + _nearest(allowed, share * len(self.text))
            places.append(self.ends[before - 1])
        whole = memoryview(self.text)
        return [whole[a:b] for a, b in zip(places, [*places[1:], len(whole)], strict=True)]


def read_documents(
    path: Path, *, blank_lines: bool, reading: Reading | None = None
) -> DocumentText:
    """Read a file, or all files of a folder and its subfolders.

    Hidden files and files without text are left out. A newline is added to a file of a folder that
    does not end with one.

    Args:
        path: The file or the folder.
        blank_lines: Whether a blank line ends a document.
        reading: Gets what was converted or left out.

    Raises:
        UserError: A file cannot be read, or a folder has no text.
    """
    if not path.is_dir():
        text = read_bytes(path, reading)
        return DocumentText(text, document_ends(text) if blank_lines else ())
    texts, ends, size = [], list[int](), 0
    for file in text_files(path):
        raw = read_bytes(file, reading)
        raw = raw if raw.endswith(b"\n") else raw + b"\n"
        ends += [size + end for end in (document_ends(raw) if blank_lines else [len(raw)])]
        texts.append(raw)
        size += len(raw)
    if not texts:
        raise UserError(f"folder {path} has no file with text; give a folder of text files")
    return DocumentText(b"".join(texts), ends)


def document_ends(text: bytes) -> list[int]:
    """Return the first byte after each document; blank lines belong to the document before them."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    blank = (match.span() for match in BLANK_LINES.finditer(text, first, last))
    return [*(end for _, end in blank), len(text)]


def text_files(folder: Path) -> list[Path]:
    """Return the files with text below a folder in the order of their paths, but hidden ones."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    shown = (f for f in files if not any(p.startswith(".") for p in f.relative_to(folder).parts))
    return [file for file in shown if file.stat().st_size and _has_text(file)]


def decode(text: memoryview, path: Path) -> str:
    """Return a part of the text of a file or folder.

    Raises:
        UserError: The text is not UTF-8; the message names the file and the line.
    """
    try:
        return str(text, "utf-8")
    except UnicodeDecodeError:
        for file in text_files(path) if path.is_dir() else [path]:
            read_text(file, Reading())  # raises
        raise


def _nearest(ends: Sequence[int], place: float) -> int:
    """Return the index of the end that is nearest to a place."""
    right = min(bisect_left(ends, place), len(ends) - 1)
    left = max(0, right - 1)
    return left if place - ends[left] <= ends[right] - place else right


def _has_text(file: Path) -> bool:
    """Whether the first kilobyte of a file, or its archive, is not blank."""
    with file.open("rb") as opened:
        begin = opened.read(1024)
    return begin.startswith(COMPRESSED) or bool(begin.strip()) or bool(file.read_bytes().strip())
