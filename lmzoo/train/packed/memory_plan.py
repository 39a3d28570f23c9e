"""Where what a recorded step makes for itself lies when it is done again.

Each piece of memory that a step makes is needed from the call that made it to the last that
reads or writes it. Pieces that are never needed at a time may lie in the same place, as they do
when memory is freed and asked for again: all of a step's are laid into one block, the arena,
which stays in the cache better than a place for each.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

ALIGN = 64
"""Every piece begins at a multiple of so many bytes, as torch's own memory does."""

Held = Tensor | np.ndarray
"""What has memory: a tensor, or what a compiled loop sees of one."""


@dataclass
class Piece:
    """A tensor's memory, made by one call and needed up to another."""

    size: int
    """Bytes."""
    made: int
    last: int
    reference: StorageWeakRef


class MemoryTrace:
    """All memory that a step made, by address; nothing of it is freed while this grows."""

    def __init__(self) -> None:
        self._found: dict[int, Piece] = {}
        self._addresses: list[int] = []
        self._elsewhere: set[int] = set()

    def used(self, held: Held, call: int) -> None:
        """A call reads it or writes to it."""
        start = self.start(held)
        if start is not None:
            self._found[start].last = call
        elif isinstance(held, Tensor):
            self._elsewhere.add(held.untyped_storage().data_ptr())

    def made(self, tensor: Tensor, call: int) -> None:
        """A call returned it: new memory, or a view of what it was given."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._elsewhere or not storage.nbytes():
            return
        if storage.data_ptr() not in self._found:
            reference = StorageWeakRef(storage)
            self._found[storage.data_ptr()] = Piece(storage.nbytes(), call, call, reference)
            bisect.insort(self._addresses, storage.data_ptr())
        self.used(tensor, call)

    def kept(self) -> bool:
        """Whether somebody still holds any of it."""
        return any(not piece.reference.expired() for piece in self._found.values())

    def start(self, held: Held) -> int | None:
        """The address of the piece that it lies in, if it lies in one."""
        if isinstance(held, Tensor):
            start = held.untyped_storage().data_ptr()
            return start if start in self._found else None
        address = _address(held)
        i = bisect.bisect_right(self._addresses, address) - 1
        if i < 0 or not held.size:
            return None
        start = self._addresses[i]
        return start if address < start + self._found[start].size else None

    def laid(self) -> tuple[dict[int, int], int]:
        """Where each piece goes, by its address, and the bytes of all."""
        lives = [(piece.size, piece.made, piece.last) for piece in self._found.values()]
        offsets, size = laid(lives)
        return dict(zip(self._found, offsets, strict=True)), size


def laid(lives: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Where to put pieces of (bytes, first call, last call), and the bytes of all.

    In order of their making, each into the smallest gap between those that are still needed.
    """
    offsets = [0] * len(lives)
    there: list[tuple[int, int, int]] = []  # (offset, end, last call), by offset
    size = 0
    for i in sorted(range(len(lives)), key=lambda i: lives[i][1]):
        length, made, last = lives[i]
        length = -(-length // ALIGN) * ALIGN
        there = [one for one in there if one[2] >= made]
        ends = [0, *(end for _, end, _ in there)]
        gaps = [(begin - end, end) for end, (begin, *_) in zip(ends, there, strict=False)]
        fitting = [gap for gap in gaps if gap[0] >= length]
        offsets[i] = min(fitting)[1] if fitting else ends[-1]
        bisect.insort(there, (offsets[i], offsets[i] + length, last))
        size = max(size, offsets[i] + length)
    return offsets, size


class MemoryBlock:
    """One block of memory, and what lay in pieces moved to it."""

    def __init__(self, size: int) -> None:
        self._block = torch.empty(size, dtype=torch.uint8)
        self._bytes = self._block.numpy()

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._block)

    def move(self, held: Any, pieces: MemoryTrace, offsets: dict[int, int]) -> Any:
        """The same shape, strides and type in the arena; what lies in no piece is as it is."""
        start = pieces.start(held)
        if start is None:
            return held
        if isinstance(held, Tensor):
            place = offsets[start] // held.element_size() + held.storage_offset()
            fresh = torch.empty(0, dtype=held.dtype)
            return fresh.set_(self._block.untyped_storage(), place, held.shape, held.stride())
        offset = offsets[start] + _address(held) - start
        return np.ndarray(held.shape, held.dtype, self._bytes, offset, held.strides)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
