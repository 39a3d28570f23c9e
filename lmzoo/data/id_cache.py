"""A cache of token ids on disk, which the workers of a host map into memory.

    LMZOO_CACHE/tokens/KEY/   ids.bin     ids, in the type that the facts name
                              meta.json   facts: plain JSON types, and the checksum of both

The key is a hash of everything that decides the ids. A folder appears by a rename after its files
are on the disk, so nothing is half-written. The checksum is verified whenever a folder is opened;
a damaged folder is written again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zlib import crc32

import torch
from jaxtyping import Integer
from torch import Tensor

from lmzoo.data.download import cache_dir

VERSION = 2
"""Part of the key; it changes whenever the ids of a text would."""
CACHED_FROM = 2**23
"""Bytes of a text from which its ids are cached."""
Encoded = tuple[Integer[Tensor, "n"], Mapping[str, Any]]
"""Ids and the facts about them."""


def cached_ids(parts: Mapping[str, Any], encode: Callable[[], Encoded]) -> Encoded:
    """Return the ids of the cache, or those of `encode`, which are written to the cache.

    `parts` decides the ids: bytes and plain JSON types by name. If the cache cannot be written, the
    ids are in memory.
    """
    folder = cache_dir() / "tokens" / _key(parts)
    found = _read(folder)
    if found is None:
        encoded = encode()
        found = (_write(folder, *encoded) and _read(folder, verify=False)) or encoded
    return found


def _key(parts: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(f"{VERSION}".encode())
    for name, value in parts.items():
        digest.update(name.encode())
        raw = value if isinstance(value, bytes | memoryview) else json.dumps(value).encode()
        digest.update(hashlib.sha256(raw).digest())
    return digest.hexdigest()[:24]


def _read(folder: Path, *, verify: bool = True) -> Encoded | None:
    """Return the ids of a folder; None if there are none or its files are damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        dtype, size = getattr(torch, meta["dtype"]), meta["size"]
        file = folder / "ids.bin"
        if file.stat().st_size != size * dtype.itemsize:
            return None
        # A private map: no worker can change the ids of another.
        ids = torch.from_file(str(file), shared=False, size=size, dtype=dtype)
        fits = not verify or _checksum(ids, meta) == meta["crc32"]
        return (ids, meta["facts"]) if fits else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return None


def _checksum(ids: Integer[Tensor, "n"], meta: Mapping[str, Any]) -> int:
    fields = {name: meta[name] for name in ("dtype", "size", "facts")}
    return crc32(json.dumps(fields, sort_keys=True).encode(), crc32(ids.numpy().data))


def _write(folder: Path, ids: Integer[Tensor, "n"], facts: Mapping[str, Any]) -> bool:
    """Write a folder of the cache; return False if the cache cannot be written."""
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(mkdtemp(dir=folder.parent, prefix=".new-"))
        dtype = str(ids.dtype).removeprefix("torch.")
        meta: dict[str, Any] = {"dtype": dtype, "size": len(ids), "facts": facts}
        meta["crc32"] = _checksum(ids, meta)
        _write_file(temporary / "ids.bin", ids.numpy().data)
        _write_file(temporary / "meta.json", json.dumps(meta).encode())
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


def _write_file(path: Path, data: bytes | memoryview) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
