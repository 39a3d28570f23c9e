"""Read the files of a user, and published ones: UTF-8 text or FASTA, plain or gzip.

Whatever else a file is, it is refused in one line that says what was found and what to do. The file
of a user is read with a `Reading`, which gets a line for whatever was converted or left out: byte
order marks are removed, and CR and CRLF end a line as LF does. A published file is taken as it is.
"""

import codecs
import gzip
import io
import os
import re
import select
import stat
import tomllib
import zipfile
import zlib
from codecs import BOM_UTF8
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lmzoo.base.errors import UserError
from lmzoo.base.foreign import check_archive
from lmzoo.base.memory import require_memory

GZIP = b"\x1f\x8b"
ARCHIVE = rb"BZh\d1AY|\xfd7zXZ|PK\x03\x04"
NO_TEXT = re.compile(ARCHIVE + rb"|%PDF-|\{\\rtf|version https://git-lfs|\xff\xfe|\xfe\xff")
"""How files begin that are no text in UTF-8, although their bytes could pass for it."""
BLOCK = 2**26
"""Bytes that are decompressed, or checked, at a time."""
JSON = re.compile(rb'\s*(\[\s*)?\{\s*"[^"\n]*"\s*:')
"""How lines or a list of JSON objects begin."""
ODD = tomllib.loads(Path(__file__).with_name("odd_texts.toml").read_text("utf-8"))
"""What looks like text and is not: name -> the pattern of its bytes."""
SHOWN = 8
RESIDUES = re.compile(r"[A-Za-z*.-]*")


@dataclass
class Reading:
    """What reading a user's file converted or left out."""

    notes: list[str] = field(default_factory=list)
    blank: int = 0
    """Blank lines, which are left out."""
    binary: bool = False
    """Whether the bytes are the tokens, so that nothing but compression is undone."""

    @property
    def shown_notes(self) -> tuple[str, ...]:
        """The first notes; a folder may have one for each file."""
        shown = self.notes[:SHOWN]
        more = len(self.notes) - SHOWN
        if more > 0:
            shown.append(f"{more:,} more notes")
        return tuple(shown)


def read_lines(path: Path, reading: Reading | None = None) -> list[str]:
    """Return all lines without their line ends. Blank lines are kept, so index + 1 = line number.

    Errors are those of `read_bytes`.
    """
    raw = read_bytes(path, reading)
    _check_utf8(path, raw)
    return split_lines(raw.decode())


def split_lines(text: str) -> list[str]:
    """Return the lines of a text; `str.splitlines` would also split at form feeds and others."""
    lines = text.split("\n")
    # One newline ends the text; more are empty lines.
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_bytes(path: Path, reading: Reading | None = None) -> bytes:
    """Return the bytes of a text, without a byte order mark.

    A `UserError` says that the file is missing, a folder, empty or broken; with a `reading`, no
    text.
    """
    raw = _read_bytes(path)
    text = raw
    # By its content, not its name: files are renamed.
    if raw.startswith(GZIP):
        text = _gunzip(path, raw)
    if path.suffix == ".gz" and text is raw and raw:
        raise _refusal(path, raw, "not compressed", "fetch it again or rename it")
    if reading is not None:
        if reading.binary:
            found = re.match(ARCHIVE, text)
        else:
            found = NO_TEXT.match(text)
        if found:
            advice = "unpack it, or convert it: iconv -f ENCODING -t utf-8"
            raise _refusal(path, found[0], "no text in UTF-8", advice)
        if text.startswith(GZIP):
            raise _refusal(path, text, "compressed twice", "decompress it first")
    # After the checks: a byte order mark hides nothing that they look for.
    text = text.removeprefix(BOM_UTF8)
    if reading is not None and not reading.binary:
        text = _clean(path, text, reading)
    if not text or text.isspace():
        raise UserError(f"{path} is empty; it must have at least one line of text")
    return text


def read_members(path: Path, pattern: str) -> dict[str, bytes]:
    """Return name -> bytes of the files in a zip archive whose names end in `pattern`, sorted.

    `pattern` has wildcards as in `Path.match`; an archive is read without unpacking it on disk. A
    `UserError` says that the archive is broken.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path, path.stat().st_size)
            members = {}
            for name in sorted(archive.namelist()):
                path_inside = PurePosixPath(name)
                # macOS adds files of its own to archives, under the names of others.
                if path_inside.match(pattern) and "__MACOSX" not in path_inside.parts:
                    members[str(path_inside)] = archive.read(str(path_inside))
            return members
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise UserError(f"{path} is a broken zip file ({error}); fetch it again") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def read_fasta(path: Path, reading: Reading | None = None) -> list[str]:
    """Return the residues of every record in file order; headers and comments are left out.

    A record is a header line that begins with `>` and one or more lines of residues: letters, `*`
    (stop), `-` and `.` (gaps). Blanks are ignored, and lines that begin with `;` or `#` are
    comments. Lower-case residues (soft masking) become upper-case, as in the NCBI tools. A
    `UserError` says that the file cannot be read or does not begin with a header, that a record is
    empty, or that a line of residues has another character.
    """
    if reading is None:
        reading = Reading()
    records: list[tuple[int, str, list[str]]] = []
    comments = 0
    lines = read_lines(path, reading)
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line.startswith(">"):
            records.append((number, line, []))
        elif line.startswith((";", "#")):
            comments += 1
        elif not line:
            reading.blank += 1
        elif not records:
            raise UserError(f"{path} line {number}: expected a '>' header, got {line[:20]!r}")
        else:
            records[-1][2].append(_residues(path, number, line))
    for number, header, residues in records:
        if not residues:
            raise UserError(f"{path} line {number}: record {header[:40]!r} has no residues")
    if not records:
        raise UserError(f"{path} has comments only; a record begins with a '>' header")
    sequences = ["".join(residues).upper() for _, _, residues in records]
    if comments:
        reading.notes.append(f"{comments:,} comment lines are left out")
    return sequences


def _residues(path: Path, number: int, line: str) -> str:
    residues = "".join(line.split())
    # A line of residues may be grouped by spaces.
    fits = RESIDUES.match(residues)
    assert fits is not None  # the pattern matches an empty text
    end = fits.end()
    if end < len(residues):
        bad = residues[end]
        advice = "residues are letters, '*', '-' or '.'; remove it, or begin a comment with ';'"
        if bad == ">":
            advice = "a header is glued to residues; begin a new line before '>'"
        begin = max(0, line.index(bad) - 30)
        shown = line[begin : begin + 40]
        raise UserError(f"{path} line {number}: {bad!r} in {shown!r} is no residue: {advice}")
    return residues


def read_text(path: Path, reading: Reading | None = None) -> bytes:
    """Return the text of a file, or of all files below a folder, in the order of their paths.

    Hidden files and files without text are left out. A file of a folder ends with a newline. A
    `UserError` says that a file cannot be read, or that the folder has no text.
    """
    if not path.is_dir():
        return read_bytes(path, reading)
    files = []
    others = []
    # Sorted: the order of a folder differs between machines.
    for found in sorted(path.rglob("*")):
        if found.is_dir() and not found.is_symlink():
            continue
        parts = found.relative_to(path).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if found.is_file() and not is_hidden:
            files.append(found)
        else:
            others.append(found)
    texts = []
    for file in files:
        if not _read_bytes(file).strip():
            continue
        text = read_bytes(file, reading)
        if not text.endswith(b"\n"):
            text += b"\n"  # or its last word would continue in the next file
        texts.append(text)
    if others and reading is not None:
        what = f"{len(others):,} hidden files, links and pipes, such as {others[0]}"
        reading.notes.append(f"left out: {what}")
    if not texts:
        raise UserError(f"folder {path} has no file with text; give a folder of text files")
    return b"".join(texts)


def _read_bytes(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            endless = stat.S_ISBLK(status.st_mode)
            # A terminal ends when the user says so.
            if stat.S_ISCHR(status.st_mode) and not file.isatty():
                endless = True
            if endless:
                raise UserError(f"{path} is a device, which may have no end; give a file")
            require_memory(status.st_size, str(path))
            return file.read()
    except FileNotFoundError:
        raise UserError(
            f"file {path} does not exist; give the path of a text file, plain or .gz"
        ) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give the path of a text file, plain or .gz") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe for more than a second."""
    # A pipe without a writer would wait forever.
    number = os.open(path, flags | os.O_NONBLOCK)
    select.select([number], [], [], 1)
    os.set_blocking(number, True)
    return number


def _gunzip(path: Path, raw: bytes) -> bytes:
    """Return the content, unless two copies of it are more than the memory."""
    parts = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            while True:
                part = file.read(BLOCK)
                if not part:
                    break
                parts.append(part)
                size += len(part)
                # A small file may unpack to more than the memory.
                require_memory(2 * size, f"the content of {path}")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is a broken gzip file ({error}); fetch it again") from None
    return b"".join(parts)


def _refusal(path: Path, raw: bytes, what: str, remedy: str) -> UserError:
    return UserError(f"{path} is {what}: it begins with {raw[:24]!r}; {remedy}")


def _clean(path: Path, raw: bytes, reading: Reading) -> bytes:
    """Return the text in UTF-8 without byte order marks, its lines ended by newlines."""
    place = raw.find(b"\0")
    if place >= 0:
        raise _not_utf8(path, raw, place, "a NUL byte")
    _check_utf8(path, raw)
    marks = raw.count(BOM_UTF8)
    if marks:
        raw = raw.replace(BOM_UTF8, b"")
        reading.notes.append(f"{marks:,} byte order marks (U+FEFF) inside the text are removed")
    returns = raw.count(b"\r")
    if returns:
        # Also of old Macs, which ended lines with it.
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        reading.notes.append(f"{returns:,} carriage returns end a line, alone or before a newline")
    for name, pattern in ODD.items():
        first = None
        count = 0
        for match in re.finditer(pattern.encode(), raw):
            if first is None:
                first = match.start()
            count += 1
        if first is not None:
            # Only for the note: a line number needs the text once more.
            line = raw.count(b"\n", 0, first) + 1
            reading.notes.append(
                f"WARNING: {path.name} has {count:,} {name}, first in line {line}; convert "
                "the file, or remove them"
            )
    if JSON.match(raw):
        reading.notes.append(
            f"{path.name} has JSON objects: their braces and names of fields are tokens, too; "
            "write the text alone, such as: jq -r .text FILE.jsonl > FILE.txt"
        )
    return raw


def _check_utf8(path: Path, raw: bytes):
    """Raise a `UserError` at the first byte that is not UTF-8; no second copy is made."""
    begin = 0
    while begin < len(raw):
        part = memoryview(raw)[begin : begin + BLOCK]
        # A character at the edge of a part is decoded with the next part.
        is_last = begin + BLOCK >= len(raw)
        try:
            begin += codecs.utf_8_decode(part, "strict", is_last)[1]
        except UnicodeDecodeError as error:
            place = begin + error.start
            bad = raw[place : begin + error.end].hex(" ")
            raise _not_utf8(path, raw, place, f"byte {bad}") from None


def _not_utf8(path: Path, raw: bytes, place: int, found: str) -> UserError:
    line = raw.count(b"\n", 0, place) + 1
    return UserError(
        f"{path} line {line}: {found} at offset {place:,} is not UTF-8 text, and the file begins "
        f"with {raw[:8]!r}; if it is text, convert it: iconv -f ENCODING -t utf-8"
    )
