"""A cache of token ids on disk, LMZOO_CACHE/tokens/KEY.pt, which the workers of a host map.

The key is a hash of everything that decides the ids. A file appears by a rename after it is on the
disk, so nothing is half-written. The checksum is verified whenever a file is opened; a damaged file
is written again.
"""

import contextlib
import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import torch
from jaxtyping import Integer
from torch import Tensor

from lmzoo.base.plain import Fields
from lmzoo.data.download import cache_dir

VERSION = 4
"""Part of the key; it changes whenever the ids of a text or the format would."""
CACHED_FROM = 2**23
"""Bytes of a text from which its ids are cached."""
Encoded = tuple[Integer[Tensor, "n"], Fields]
"""Ids and the facts about them, plain JSON types."""
BROKEN = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
)
"""What reading a damaged file raises."""


def cached_ids(parts: Fields, encode: Callable[[], Encoded]) -> Encoded:
    """Return the ids of the cache, or those of `encode`, which are written to the cache.

    `parts` decides the ids: bytes and plain JSON types by name. If the cache cannot be written, the
    ids are in memory.
    """
    digest = hashlib.sha256(f"{VERSION}".encode())
    for name, value in parts.items():
        digest.update(name.encode())
        raw = value
        if not isinstance(value, bytes | memoryview):
            raw = json.dumps(value).encode()
        digest.update(hashlib.sha256(raw).digest())
    file = cache_dir() / "tokens" / f"{digest.hexdigest()[:24]}.pt"
    found = _read(file)
    if found is not None:
        return found
    encoded = encode()
    _write(file, encoded)
    # Mapped like those of the other workers: the memory of the encoded ids is freed.
    found = _read(file)
    if found is None:
        return encoded
    return found


def _read(file: Path) -> Encoded | None:
    """Return the ids of a file; None if there is none or it is damaged."""
    try:
        # A private map: no worker can change the ids of another.
        stored = torch.load(file, mmap=True, weights_only=True)
        ids = stored["ids"]
        facts = stored["facts"]
        checksum = crc32(facts.encode(), crc32(ids.numpy().data))
        if checksum == stored["crc32"]:
            return ids, json.loads(facts)
        return None
    except BROKEN:
        return None


def _write(file: Path, encoded: Encoded):
    """Write a file of the cache, if the cache can be written."""
    ids, facts = encoded
    text = json.dumps(facts)
    # Of this process alone: several workers may write the same file.
    temporary = file.with_suffix(f".{os.getpid()}")
    checksum = crc32(text.encode(), crc32(ids.numpy().data))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as opened:
            torch.save({"ids": ids, "facts": text, "crc32": checksum}, opened)
            opened.flush()
            # Before the rename: a file with its final name must be whole on the disk.
            os.fsync(opened.fileno())
        temporary.replace(file)
    except (OSError, RuntimeError):  # no space; the ids are in memory
        with contextlib.suppress(OSError):
            temporary.unlink()
