"""Encode a long text by character once, and map its ids into memory afterwards.

    LMZOO_CACHE/tokens/KEY/   ids.bin     the ids of all characters, in the type of the vocabulary
                              meta.json   vocabulary and sizes

The key is a hash of the file's bytes, so a changed file is encoded again. Workers of a host map one
copy of the ids. A folder appears by a rename, so nothing is half-written; a folder whose files do
not fit together is encoded again. Texts below `CACHED_FROM` bytes are encoded in less time than the
cache would save.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from jaxtyping import Integer, UInt32
from torch import Tensor

from lmzoo.contract import UNKNOWN
from lmzoo.data.corpus import token_dtype
from lmzoo.data.download import cache_dir
from lmzoo.data.files import read_text
from lmzoo.data.vocabulary import Vocabulary, rank_tokens

VERSION = 1
"""Part of the key; it changes whenever the ids of a text would."""
CACHED_FROM = 2**23
"""Bytes of a file from which its ids are cached."""
CHUNK = 2**20
"""Characters that are encoded at a time."""


@dataclass(frozen=True)
class EncodedText:
    """The ids of all characters of a text."""

    ids: Integer[Tensor, "n"]
    vocabulary: Vocabulary
    bytes: tuple[int, ...]
    """Size in UTF-8 of each part."""


@dataclass(frozen=True)
class Parts:
    """Shares of a text, as pairs (begin, end) between 0 and 1; the first defines the vocabulary."""

    shares: tuple[tuple[float, float], ...]

    def bounds(self, size: int) -> list[tuple[int, int]]:
        """Return the first character of each part and the first behind it."""
        return [(int(begin * size), int(end * size)) for begin, end in self.shares]


def encode_file(path: Path, parts: Parts) -> EncodedText:
    """Return the ids of a text file, from the cache if it is long.

    Raises:
        UserError: The file cannot be read.
    """
    if not path.is_file() or path.stat().st_size < CACHED_FROM:
        return _encode(read_text(path), parts)
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    key = hashlib.sha256(f"{VERSION} {content} {parts.shares}".encode()).hexdigest()[:24]
    folder = cache_dir() / "tokens" / key
    found = _read(folder)
    if found is None:
        encoded = _encode(read_text(path), parts)
        found = encoded if not _write(folder, encoded) else _read(folder) or encoded
    return found


def _encode(text: str, parts: Parts) -> EncodedText:
    bounds = parts.bounds(len(text))
    counts = np.zeros(0x110000, dtype=np.int64)
    for codes in _codes(text, *bounds[0]):
        found, times = np.unique(codes, return_counts=True)
        counts[found] += times
    present = np.flatnonzero(counts)
    vocabulary = rank_tokens(Counter({chr(c): int(counts[c]) for c in present}), joiner="")
    dtype = token_dtype(len(vocabulary))
    ids = torch.empty(len(text), dtype=dtype)
    table = np.full(0x110000, UNKNOWN, dtype=ids.numpy().dtype)
    for token, i in vocabulary.ids.items():
        if len(token) == 1:
            table[ord(token)] = i
    done = 0
    for codes in _codes(text, 0, len(text)):
        ids.numpy()[done : done + len(codes)] = table[codes]
        done += len(codes)
    sizes = tuple(_utf8_size(text, *bound) for bound in bounds)
    return EncodedText(ids, vocabulary, sizes)


def _codes(text: str, begin: int, end: int) -> Iterator[UInt32[np.ndarray, "_"]]:
    """Yield the code points of text[begin:end] in chunks."""
    for i in range(begin, end, CHUNK):
        yield np.frombuffer(text[i : min(end, i + CHUNK)].encode("utf-32-le"), dtype=np.uint32)


def _utf8_size(text: str, begin: int, end: int) -> int:
    return sum(len(text[i : min(end, i + CHUNK)].encode()) for i in range(begin, end, CHUNK))


def _read(folder: Path) -> EncodedText | None:
    """Return the text in a folder of the cache; None if there is none or its files are damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        vocabulary = Vocabulary(tuple(meta["vocabulary"]), joiner="")
        dtype, size = token_dtype(len(vocabulary)), meta["characters"]
        file = folder / "ids.bin"
        if file.stat().st_size != size * dtype.itemsize:
            return None
        # A private map: no worker can change the ids of another.
        ids = torch.from_file(str(file), shared=False, size=size, dtype=dtype)
        return EncodedText(ids, vocabulary, tuple(meta["bytes"]))
    except (OSError, ValueError, KeyError):
        return None


def _write(folder: Path, encoded: EncodedText) -> bool:
    """Write a folder of the cache; return False if the cache cannot be written."""
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(mkdtemp(dir=folder.parent, prefix=".new-"))
        encoded.ids.numpy().tofile(temporary / "ids.bin")
        meta = {
            "vocabulary": list(encoded.vocabulary.tokens),
            "characters": len(encoded.ids),
            "bytes": list(encoded.bytes),
        }
        (temporary / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        if _read(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)  # damaged
            temporary.chmod(0o755)
            temporary.rename(folder)
        return True
    except OSError:
        return False  # no space, or another worker was first; the ids are in memory
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
