"""Files of named arrays, in the safetensors format; standard library only.

    8 bytes: length of the header | header, JSON | arrays, one after another

The header has the type, the shape and the place of each array, and text by name as
`__metadata__`. Here it has checksums, too. Such a file is written from arrays as they lie in
memory, which the library would copy first; it reads these files.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

Buffer = bytes | memoryview
METADATA, CHECKSUMS, NUMBER = "__metadata__", "crc32", "number"
RUNS, STATE, RUN = "runs", "state", "run"


class Array(NamedTuple):
    """An array as it lies in memory."""

    dtype: str
    """F32, F64, I64, ..."""
    shape: tuple[int, ...]
    data: Buffer


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[Buffer]:
    """Return the pieces of a file."""
    checksums = {name: zlib.crc32(array.data) for name, array in arrays.items()}
    header: dict[str, Any] = {METADATA: {**metadata, CHECKSUMS: json.dumps(checksums)}}
    begin = 0
    for name, array in arrays.items():
        end = begin + len(array.data)
        header[name] = {"dtype": array.dtype, "shape": array.shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)) + text, *(array.data for array in arrays.values())]


def decode(data: bytes) -> tuple[dict[str, str], dict[str, Array]]:
    """Return the metadata and the arrays of a file; a ValueError if it is damaged."""
    (length,) = struct.unpack_from("<Q", data)
    header, view = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
    metadata = header.pop(METADATA)
    checksums, arrays = json.loads(metadata.pop(CHECKSUMS)), {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = Array(entry["dtype"], tuple(entry["shape"]), view[begin:end])
        if end > len(view) or zlib.crc32(arrays[name].data) != checksums[name]:
            raise ValueError(f"{name} is damaged")
    return metadata, arrays


def split(data: bytes) -> tuple[int, list[tuple[str, dict, list[Buffer]]]]:
    """Return the number of a pack's file; and each run, its plain state, a file of its own rows.

    The metadata `runs` has, for each run, its rows by the name of the array, and its state. In the
    file of a run, arrays have the part of their name after the last dot. See `decode`.
    """
    metadata, stacked = decode(data)
    number, found = int(metadata.pop(NUMBER)), []
    for run in json.loads(metadata.pop(RUNS)):
        own = {}
        for name, row in run["rows"].items():
            dtype, shape, view = stacked[name]
            size = len(view) // shape[0]
            own[name.rpartition(".")[2]] = Array(
                dtype, shape[1:], view[row * size : (row + 1) * size]
            )
        text = {**metadata, RUN: run[RUN], STATE: json.dumps(run[STATE])}
        found.append((run[RUN], run[STATE], encode(own, text)))
    return number, found
