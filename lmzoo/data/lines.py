"""The lines of a UTF-8 text file, plain or gzipped, or one line on what is wrong with it."""

import gzip
import zlib
from codecs import BOM_UTF8
from pathlib import Path

from lmzoo.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path: Path) -> list[str]:
    """All lines without their ends, blank ones included, so that an index is a line number.

    Raises:
        UserError: the file is missing, a folder, empty, a broken gzip or not UTF-8.
    """
    raw = _unzipped(path, _bytes(path)).removeprefix(BOM_UTF8)
    if not raw.strip():
        raise UserError(f"{path} is empty; it must hold at least one line of text")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start : error.end].hex(" ")
        raise UserError(f"{path} line {line}: bytes {bad} are not UTF-8; re-encode it") from None
    # Not str.splitlines, which also breaks at form feeds and other marks inside a line.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"no file {path}; give the path of a text file, plain or .gz") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give the path of a text file, plain or .gz") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _unzipped(path: Path, raw: bytes) -> bytes:
    if not raw or not (path.suffix == ".gz" or raw.startswith(GZIP_MAGIC)):
        return raw
    try:
        return gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is a broken gzip file ({error}); fetch it again") from None
