"""Plan where the intermediate results of a recorded step are stored when it is replayed.

An intermediate result is live from the call that allocates it to the last call that reads or
writes it. Results that are never live at the same time may share memory. The plan gives every
result an offset in one memory block. The block is smaller than all results together, so more of it
stays in the cache.

Keep freed memory in the process instead of returning it to the system.

A training step of a pack frees arrays of some megabytes and allocates them again in the next step.
By default glibc returns such memory, and the system then clears every page that it hands out again:
up to a fifth of the step. With the settings below a process keeps its peak memory, of which at most
`MAX_UNUSED` bytes may be unused.
"""

import bisect
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

ALIGN = 64
"""Offsets are multiples of this number of bytes, as torch's own allocations are."""

Buffer = Tensor | np.ndarray
"""A tensor, or the NumPy view of one that a kernel receives."""


@dataclass
class Allocation:
    """The storage of a tensor (`size` in bytes), and the calls between which it is live."""

    size: int
    first: int
    last: int
    reference: StorageWeakRef


class MemoryTrace:
    """The allocations of a recorded step, by address.

    Nothing may be freed while the step is recorded, or addresses would be ambiguous.
    """

    def __init__(self) -> None:
        self._allocations: dict[int, Allocation] = {}
        self._addresses: list[int] = []
        self._external: set[int] = set()

    def add_use(self, buffer: Buffer, call: int) -> None:
        """Record that a call reads or writes this buffer."""
        start = self.start_of(buffer)
        if start is not None:
            self._allocations[start].last = call
        elif isinstance(buffer, Tensor):
            self._external.add(buffer.untyped_storage().data_ptr())

    def add_result(self, tensor: Tensor, call: int) -> None:
        """Record that a call returned this tensor: a new allocation, or a view of an argument."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._external or not storage.nbytes():
            return
        if storage.data_ptr() not in self._allocations:
            allocation = Allocation(storage.nbytes(), call, call, StorageWeakRef(storage))
            self._allocations[storage.data_ptr()] = allocation
            bisect.insort(self._addresses, storage.data_ptr())
        self.add_use(tensor, call)

    def any_alive(self) -> bool:
        """Whether a reference to any allocation still exists."""
        return any(not a.reference.expired() for a in self._allocations.values())

    def start_of(self, buffer: Buffer) -> int | None:
        """Return the address of the allocation that contains the buffer, or None."""
        if isinstance(buffer, Tensor):
            start = buffer.untyped_storage().data_ptr()
            return start if start in self._allocations else None
        address = _address(buffer)
        i = bisect.bisect_right(self._addresses, address) - 1
        if i < 0 or not buffer.size:
            return None
        start = self._addresses[i]
        return start if address < start + self._allocations[start].size else None

    def plan(self) -> tuple[dict[int, int], int]:
        """Return the offset of each allocation, by its address, and the size of the block."""
        lifetimes = [(a.size, a.first, a.last) for a in self._allocations.values()]
        offsets, size = plan_offsets(lifetimes)
        return dict(zip(self._allocations, offsets, strict=True)), size


def plan_offsets(lifetimes: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Return offsets at which allocations that are live at the same time do not overlap.

    Allocations (bytes, first call, last call) are placed in the order of their first call, each
    into the smallest gap between the ones still live. The size of the block is returned as well.
    """
    offsets = [0] * len(lifetimes)
    live: list[tuple[int, int, int]] = []  # (offset, end, last call), sorted by offset
    size = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i][1]):
        length, first, last = lifetimes[i]
        length = -(-length // ALIGN) * ALIGN
        live = [entry for entry in live if entry[2] >= first]
        ends = [0, *(end for _, end, _ in live)]
        gaps = [(begin - end, end) for end, (begin, *_) in zip(ends, live, strict=False)]
        fitting = [gap for gap in gaps if gap[0] >= length]
        offsets[i] = min(fitting)[1] if fitting else ends[-1]
        bisect.insort(live, (offsets[i], offsets[i] + length, last))
        size = max(size, offsets[i] + length)
    return offsets, size


class MemoryBlock:
    """One block of memory that holds the intermediate results of a replayed step."""

    def __init__(self, size: int) -> None:
        self.size, self._block = size, torch.empty(size, dtype=torch.uint8)
        self._bytes = self._block.numpy()

    def relocate(self, buffer: Any, trace: MemoryTrace, offsets: dict[int, int]) -> Any:
        """Return a buffer of the same shape, strides and type inside the block.

        A buffer that is not part of a recorded allocation is returned unchanged.
        """
        start = trace.start_of(buffer)
        if start is None:
            return buffer
        if isinstance(buffer, Tensor):
            element = offsets[start] // buffer.element_size() + buffer.storage_offset()
            relocated = torch.empty(0, dtype=buffer.dtype)
            storage = self._block.untyped_storage()
            return relocated.set_(storage, element, buffer.shape, buffer.stride())
        offset = offsets[start] + _address(buffer) - start
        return np.ndarray(buffer.shape, buffer.dtype, self._bytes, offset, buffer.strides)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


MAX_UNUSED = 1 << 30
"""Unused bytes at the end of the heap above which glibc returns memory."""

MAX_BLOCK = 1 << 25
"""Blocks up to this many bytes come from the heap; glibc accepts no larger value."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h


def retain_freed_memory() -> bool:
    """Configure glibc to retain freed memory; return False if there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; on Windows CDLL(None) fails
        return False
    return bool(mallopt(_TRIM_THRESHOLD, MAX_UNUSED)) and bool(mallopt(_MMAP_THRESHOLD, MAX_BLOCK))
