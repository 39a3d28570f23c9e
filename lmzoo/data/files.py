"""Read text files and FASTA files: UTF-8 or marked UTF-16 and UTF-32, plain or compressed.

    .gz .bz2 .xz    decompressed, whatever the name is; so is a zip archive of one file
    UTF-16, UTF-32  converted if a byte order mark says so; without one, they are refused

The file of a user is read with a `Reading`, which gets a line for whatever was converted or left
out. Byte order marks inside the text are removed, and a carriage return alone ends a line.
Unicode forms are kept: where a text is not in NFC, its words are as they are, and a line says so.
A published file is taken as it is.
"""

import bz2
import contextlib
import functools
import gzip
import hashlib
import io
import lzma
import os
import re
import stat
import unicodedata
import zipfile
import zlib
from codecs import (
    BOM_UTF8,
    BOM_UTF16_BE,
    BOM_UTF16_LE,
    BOM_UTF32_BE,
    BOM_UTF32_LE,
)
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from lmzoo.base.errors import UserError, user_path
from lmzoo.base.memory import require_memory

GZIP, BZIP2, XZ, ZIP = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04"
COMPRESSED = (GZIP, BZIP2, XZ, ZIP)
SUFFIXES = (".gz", ".bz2", ".xz", ".zip")
REFUSED = {
    b"\x28\xb5\x2f\xfd": "a Zstandard file; decompress it first",
    b"\x1f\x9d": "a compress (.Z) file; decompress it first",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive; unpack it first",
    b"Rar!\x1a\x07": "a RAR archive; unpack it first",
    b"PK\x05\x06": "an empty zip archive",
    b"%PDF-": "a PDF file; extract its text first",
    b"PAR1": "a Parquet file; write its text to a file first",
    b"SQLite format 3\0": "an SQLite database; write its text to a file first",
    b"\x89PNG": "a PNG image",
    b"\x93NUMPY": "a NumPy array",
    b"\x04\x22\x4d\x18": "an LZ4 file; decompress it first",
    b"]\0\0": "an LZMA file; decompress it first",
    b"ARROW1": "an Arrow file; write its text to a file first",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x7fELF": "a program",
    b"\x89HDF": "an HDF5 file; write its text to a file first",
    b"\xd0\xcf\x11\xe0": "an Office document; save it as text first",
    b"version https://git-lfs.github.com/spec/": "a pointer of Git LFS; run git lfs pull",
}
"""The first bytes of files that are no text -> what they are, and what to do."""
MARKUP = {
    re.compile(
        rb"(<!--.*-->\s*)?<(!doctype html|html|head|body)", re.IGNORECASE
    ): "a web page (HTML)",
    re.compile(rb"<\?xml|<!--|<[a-z][\w:-]*\s+[\w:-]+=[\"']", re.IGNORECASE): "XML",
    re.compile(rb"[{\[]\s*[\"{\[]"): "JSON",
    re.compile(rb"\{\\rtf"): "RTF",
    re.compile(rb"%!PS"): "PostScript",
    re.compile(rb"\([ld]p\d+\n"): "a pickle",
}
"""How files begin that are text, but not only the text that a reader sees -> what they are."""
UTF_MARKS = {
    BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark is its beginning
    BOM_UTF32_BE: "UTF-32",
    BOM_UTF16_LE: "UTF-16",
    BOM_UTF16_BE: "UTF-16",
}
UTF_WITHOUT_MARK = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
NO_TEXT = ("Cc", "Cn", "Co", "Cs")
"""Categories of characters that a text does not have."""
BLOCK = 2**26
"""Bytes that are decompressed at a time."""
NESTED = 3
"""Files inside compressed files that are decompressed, as in `text.gz.gz`."""
LONE_RETURN = re.compile(rb"\r(?!\n)")
STRETCH = 2**20
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
        more = len(self.notes) - SHOWN
        return (*self.notes[:SHOWN], *([f"{more:,} more notes"] if more > 0 else []))


def read_lines(path: Path, reading: Reading | None = None) -> list[str]:
    """Return all lines without their line ends. Blank lines are kept, so index + 1 = line number.

    Raises:
        UserError: See `read_text`.
    """
    # str.splitlines would also split at form feeds and other separators inside a line.
    lines = read_text(path, reading).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def read_text(path: Path, reading: Reading | None = None) -> str:
    """Return the whole text, line ends included, without a byte order mark.

    Raises:
        UserError: The file is missing, a folder, empty, broken, or no text in UTF-8.
    """
    raw = read_bytes(path, reading)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start : error.end].hex(" ")
        raise UserError(
            f"{path} line {line}: bytes {bad} are not UTF-8; convert the file to UTF-8"
        ) from None


def read_bytes(path: Path, reading: Reading | None = None) -> bytes:
    """Return the bytes of a text, without a byte order mark.

    Raises:
        UserError: The file is missing, a folder, empty, broken, or no text.
    """
    raw = _read_bytes(path)
    unpacked = _unpack(path, raw)
    if unpacked is raw and path.suffix in SUFFIXES and raw:
        _check_suffix(path, raw, reading)
    if reading is not None and not reading.binary:
        text = _clean(path, unpacked, reading)
    else:
        text = unpacked.removeprefix(BOM_UTF8)
    if not text.strip():
        raise UserError(f"{path} is empty; it must have at least one line of text")
    return text


def read_members(path: Path, pattern: str) -> dict[str, bytes]:
    """Return name -> bytes of the files in a zip archive whose names end in `pattern`, sorted.

    `pattern` has wildcards as in `Path.match`; an archive is read without unpacking it on disk.

    Raises:
        UserError: The archive is broken.
    """
    return _members(path, path, lambda name: name.match(pattern))


def sha256_of(path: Path | str) -> str:
    """Return the SHA-256 of a file.

    Raises:
        UserError: The file cannot be read.
    """
    return hashlib.sha256(_read_bytes(user_path(path))).hexdigest()


def read_fasta(path: Path, reading: Reading | None = None) -> list[str]:
    """Return the residues of every record in file order; headers and comments are left out.

    A record is a header line that begins with `>` and one or more lines of residues: letters, `*`
    (stop), `-` and `.` (gaps). Blanks are ignored, and lines that begin with `;` or `#` are
    comments. Lower-case residues (soft masking) become upper-case, as in the NCBI tools.

    Raises:
        UserError: The file cannot be read, does not begin with a header, a record is empty, or a
            line of residues has another character.
    """
    reading = reading or Reading()
    records: list[tuple[int, str, list[str]]] = []
    comments = 0
    for number, line in enumerate(map(str.strip, read_lines(path, reading)), start=1):
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
    reading.notes.extend(_odd_residues(sequences))
    return sequences


def _residues(path: Path, number: int, line: str) -> str:
    residues = "".join(line.split())
    fits = RESIDUES.match(residues)
    if fits is None or fits.end() < len(residues):
        bad = residues[fits.end() if fits else 0]
        advice = (
            "a header is glued to residues; begin a new line before '>'"
            if bad == ">"
            else "residues are letters, '*', '-' or '.'; remove it, or begin a comment with ';'"
        )
        begin = max(0, line.index(bad) - 30)
        shown = line[begin : begin + 40]
        raise UserError(f"{path} line {number}: {bad!r} in {shown!r} is no residue: {advice}")
    return residues


def _odd_residues(sequences: list[str]) -> Iterator[str]:
    """Yield lines about residues that are tokens although they may be no residues."""
    stops = sum(sequence.endswith("*") for sequence in sequences)
    if stops:
        share = "every record ends" if stops == len(sequences) else f"{stops:,} records end"
        yield f"{share} with '*', which is a token; remove it if it only marks the end"
    gaps = sum("-" in sequence or "." in sequence for sequence in sequences)
    if gaps:
        yield f"{gaps:,} records have gaps ('-' or '.'), which are tokens"


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and not file.isatty()):
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


def _unpack(path: Path, raw: bytes) -> bytes:
    """Return the content of a compressed file; `raw` itself if it is not compressed."""
    for _ in range(NESTED):
        if raw.startswith(GZIP):
            raw = _decompress(path, "gzip", functools.partial(_gunzip, path), raw)
        elif raw.startswith(BZIP2) and raw[4:10] == b"1AY&SY":
            raw = _decompress(path, "bzip2", _every_stream(bz2.BZ2Decompressor), raw)
        elif raw.startswith(XZ):
            raw = _decompress(path, "xz", _every_stream(lzma.LZMADecompressor), raw)
        elif raw.startswith(ZIP):
            raw = _only_member(path, raw)
        else:
            break
    else:
        if raw.startswith((GZIP, XZ, ZIP)):
            raise UserError(f"{path} is compressed more than {NESTED} times; decompress it first")
    return raw


def _decompress(path: Path, kind: str, read: Callable[[bytes], bytes], raw: bytes) -> bytes:
    try:
        return read(raw)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path} is a broken {kind} file ({error}); fetch it again") from None


def _gunzip(path: Path, raw: bytes) -> bytes:
    """Return the content, unless two copies of it are more than the memory."""
    parts, size = [], 0
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        while part := file.read(BLOCK):
            parts.append(part)
            size += len(part)
            require_memory(2 * size, f"the content of {path}")
    return b"".join(parts)


def _every_stream(new: Callable[[], Any]) -> Callable[[bytes], bytes]:
    """Return a function that reads all streams of a file; the modules' own drop what follows."""

    def read(raw: bytes) -> bytes:
        parts = []
        while raw:
            stream = new()
            parts.append(stream.decompress(raw))
            if not stream.eof:
                raise EOFError("it ends inside a stream")
            raw = stream.unused_data.lstrip(b"\0")  # padding
        return b"".join(parts)

    return read


def _only_member(path: Path, raw: bytes) -> bytes:
    members = _members(path, io.BytesIO(raw), lambda _: True)
    if len(members) != 1:
        if "[Content_Types].xml" in members or "mimetype" in members:
            raise UserError(f"{path} is an Office document or an e-book; save it as text first")
        names = ", ".join([*members][:3]) + (", ..." if len(members) > 3 else "")
        raise UserError(
            f"{path} is a zip archive of {len(members)} files ({names}); unpack it and give one "
            "file or the folder"
        )
    return next(iter(members.values()))


def _members(path: Path, file: Any, wanted: Callable[[PurePosixPath], bool]) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(file) as archive:
            names = sorted(n for n in archive.namelist() if not n.endswith("/"))
            shown = [n for n in names if _is_shown(PurePosixPath(n)) and wanted(PurePosixPath(n))]
            return {name: archive.read(name) for name in shown}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise UserError(f"{path} is a broken zip file ({error}); fetch it again") from None
    except (RuntimeError, lzma.LZMAError) as error:  # encrypted, or another method
        raise UserError(f"{path} cannot be unpacked ({error}); unpack it first") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def _is_shown(name: PurePosixPath) -> bool:
    return not any(part.startswith((".", "__MACOSX")) for part in name.parts)


def _check_suffix(path: Path, raw: bytes, reading: Reading | None) -> None:
    """Say that a file is not compressed although its name says so."""
    what = _markup(raw)
    if reading is None or what:
        what = what or "not compressed"
        raise UserError(f"{path} is {what}, not a {path.suffix} file; fetch it again or rename it")
    reading.notes.append(f"{path.name} is not compressed; it is read as plain text")


def _markup(raw: bytes) -> str:
    """Return what a file is that is more than plain text; "" for others."""
    begin = raw[:512].removeprefix(BOM_UTF8).lstrip()
    return next((what for pattern, what in MARKUP.items() if pattern.match(begin)), "")


def _clean(path: Path, raw: bytes, reading: Reading) -> bytes:
    """Return the text in UTF-8 without byte order marks, its lines ended by newlines.

    Raises:
        UserError: It has NUL bytes, so it is no text, or in UTF-16 or UTF-32 without a mark.
    """
    for magic, what in REFUSED.items():
        if raw.startswith(magic):
            raise UserError(f"{path} is {what}")
    if raw[257:262] == b"ustar":
        raise UserError(f"{path} is a tar archive; unpack it and give the folder")
    for mark, name in UTF_MARKS.items():
        if raw.startswith(mark):
            try:
                raw = raw.decode(name).encode()
            except UnicodeDecodeError:
                raise UserError(
                    f"{path} begins with the byte order mark of {name} and is not {name}; convert "
                    "the file to UTF-8"
                ) from None
            reading.notes.append(f"{path.name} is {name}; it is read as such")
            break
    if b"\0" in raw:
        raise UserError(_about_nul(path, raw))
    if what := _markup(raw):
        reading.notes.append(f"{path.name} looks like {what}; its markup is read as text")
    raw = raw.removeprefix(BOM_UTF8)
    plain = raw.isascii()
    if marks := 0 if plain else raw.count(BOM_UTF8):
        with contextlib.suppress(UnicodeDecodeError):  # refused later; a mark splits a character
            raw = raw.decode().replace("\ufeff", "").encode()
            reading.notes.append(f"{marks:,} byte order marks (U+FEFF) inside the text are removed")
    if (returns := raw.count(b"\r")) and returns > raw.count(b"\r\n"):
        raw, count = LONE_RETURN.subn(b"\n", raw)
        reading.notes.append(f"{count:,} lines end with a carriage return alone")
    if not plain:
        reading.notes.extend(_about_forms(raw))
    return raw


def _about_nul(path: Path, raw: bytes) -> str:
    """Return what a file with NUL bytes is."""
    blanks = {name: _blanks(raw, name) for name in UTF_WITHOUT_MARK}
    name = max(blanks, key=lambda name: blanks[name])
    if not blanks[name]:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        return f"{path} line {line}: a NUL byte; the file is damaged or no text"
    return (
        f"{path} has NUL bytes and looks like {name} without a byte order mark; convert it: "
        f"iconv -f {name} -t UTF-8"
    )


def _blanks(raw: bytes, encoding: str) -> int:
    """Return the blanks at the beginning of a text in an encoding; 0 if it is not in it."""
    try:
        begin = raw.decode(encoding)[:STRETCH]
    except UnicodeDecodeError:
        return 0
    blank = begin.count(" ") + begin.count("\n")
    return blank if all(unicodedata.category(c) not in NO_TEXT or c.isspace() for c in begin) else 0


def _about_forms(raw: bytes) -> Iterator[str]:
    """Yield a line if the text is not in NFC: equal words may be spelled in two ways."""
    parts = (raw[i : i + STRETCH].decode(errors="ignore") for i in range(0, len(raw), STRETCH))
    if all(unicodedata.is_normalized("NFC", part) for part in parts):
        return
    words = {word for word in raw.decode(errors="ignore").split() if not word.isascii()}
    composed = {word: unicodedata.normalize("NFC", word) for word in words}
    other = [word for word, form in composed.items() if form != word]
    if other:
        twice = sum(composed[word] in words for word in other)
        yield (
            f"{len(other):,} words are not in Unicode's composed form (NFC); {twice:,} of them "
            "occur in it, too, and count as other words: convert the file to NFC"
        )
