"""Read UTF-8 text files and FASTA files, plain or gzipped, and the files of a zip archive."""

import gzip
import hashlib
import zipfile
import zlib
from codecs import BOM_UTF8
from pathlib import Path, PurePosixPath

from lmzoo.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path: Path) -> list[str]:
    """Return all lines without their line ends. Blank lines are kept, so index + 1 = line number.

    Raises:
        UserError: The file is missing, a folder, empty, a broken gzip file or not UTF-8.
    """
    text = read_text(path)
    # str.splitlines would also split at form feeds and other separators inside a line.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def read_text(path: Path) -> str:
    """Return the whole text, line ends included, without a byte order mark.

    Raises:
        UserError: The file is missing, a folder, empty, a broken gzip file or not UTF-8.
    """
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start : error.end].hex(" ")
        raise UserError(
            f"{path} line {line}: bytes {bad} are not UTF-8; convert the file to UTF-8"
        ) from None


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a text, without a byte order mark.

    Raises:
        UserError: The file is missing, a folder, empty or a broken gzip file.
    """
    raw = _unzip(path, _read_bytes(path)).removeprefix(BOM_UTF8)
    if not raw.strip():
        raise UserError(f"{path} is empty; it must have at least one line of text")
    return raw


def read_members(path: Path, pattern: str) -> dict[str, bytes]:
    """Return name -> bytes of the files in a zip archive whose names end in `pattern`, sorted.

    `pattern` has wildcards as in `Path.match`; an archive is read without unpacking it on disk.

    Raises:
        UserError: The archive is broken.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(n for n in archive.namelist() if _is_member(PurePosixPath(n), pattern))
            return {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{path} is a broken zip file ({error}); fetch it again") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _is_member(name: PurePosixPath, pattern: str) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
    return name.match(pattern) and not hidden


def sha256_of(path: Path | str) -> str:
    """Return the SHA-256 of a file.

    Raises:
        UserError: The file cannot be read.
    """
    return hashlib.sha256(_read_bytes(Path(path).expanduser())).hexdigest()


def read_fasta(path: Path) -> list[str]:
    """Return the residues of every record in file order; the header lines are dropped.

    A record is a header line that begins with `>` and one or more lines of residues. Lower-case
    residues (soft masking) become upper-case, as in the NCBI tools.

    Raises:
        UserError: The file cannot be read, does not begin with a header, or a record is empty.
    """
    records: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(">"):
            records.append((number, line, []))
        elif line.strip():
            if not records:
                raise UserError(f"{path} line {number}: expected a '>' header, got {line[:20]!r}")
            records[-1][2].append("".join(line.split()))
    for number, header, residues in records:
        if not residues:
            raise UserError(f"{path} line {number}: record {header[:40]!r} has no residues")
    return ["".join(residues).upper() for _, _, residues in records]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"file {path} does not exist; give the path of a text file, plain or .gz"
        ) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give the path of a text file, plain or .gz") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _unzip(path: Path, raw: bytes) -> bytes:
    if not raw or not (path.suffix == ".gz" or raw.startswith(GZIP_MAGIC)):
        return raw
    try:
        return gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is a broken gzip file ({error}); fetch it again") from None
