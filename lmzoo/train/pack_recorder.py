"""Record a training step of a pack on a CPU, and replay it.

    record    perform the step, and store every torch operation and every kernel call with its
              arguments and results
    replay    perform the calls that compute something, in the same order, each into the memory of
              its recorded result

A step of a few small members spends more time in Python (`vmap`, autograd, hooks, views) than in
arithmetic. The Python part is the same in every step of one batch shape, so it runs only once.
A replay gives the same bits, because it performs the same operations.

An intermediate result is live from the call that allocates it to the last call that reads or
writes it. Results that are never live at the same time may share memory. A plan gives every result
an offset in one memory block, which is smaller than all results together, so more of it stays in
the cache.

A step that is not replayed frees arrays of some megabytes, and the next step allocates them again.
By default glibc returns such memory, and the system then clears every page that it hands out again:
up to a fifth of the step. With the settings below a process keeps its peak memory, of which at most
`MAX_UNUSED` bytes may be unused.

The idea is that of CUDA graphs, see `lmzoo/train/stepper.py`. Runs that are trained alone are not
recorded: their torch optimisers count steps in Python.
"""

import bisect
import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from lmzoo.kernels.dispatch import Kernel, record_kernels
from lmzoo.train.stepper import Recorder, RecordingError, Work

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

    def __init__(self):
        self._allocations: dict[int, Allocation] = {}
        self._addresses: list[int] = []
        self._external: set[int] = set()

    def add_use(self, buffer: Buffer, call: int):
        """Record that a call reads or writes this buffer."""
        start = self.start_of(buffer)
        if start is not None:
            # Results are in the order of their calls, so the last use seen is the last there is.
            self._allocations[start].last = call
        elif isinstance(buffer, Tensor):
            self._external.add(buffer.untyped_storage().data_ptr())

    def add_result(self, tensor: Tensor, call: int):
        """Record that a call returned this tensor: a new allocation, or a view of an argument."""
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        size = storage.nbytes()
        # Memory that was there before the step, such as weights, stays where it is.
        if address in self._external or not size:
            return
        if address not in self._allocations:
            reference = StorageWeakRef(storage)
            self._allocations[address] = Allocation(size, call, call, reference)
            bisect.insort(self._addresses, address)
        self.add_use(tensor, call)

    def any_alive(self) -> bool:
        """Whether a reference to any allocation still exists."""
        references = [own.reference for own in self._allocations.values()]
        # A tensor that outlives the step, e.g. in a cache, would be overwritten by the next
        # replay.
        return not all(reference.expired() for reference in references)

    def start_of(self, buffer: Buffer) -> int | None:
        """Return the address of the allocation that contains the buffer, or None."""
        if isinstance(buffer, Tensor):
            start = buffer.untyped_storage().data_ptr()
            if start in self._allocations:
                return start
            return None
        address = _address(buffer)
        # The kernel's array may begin inside an allocation: the last one that begins before it.
        i = bisect.bisect_right(self._addresses, address) - 1
        if i < 0 or not buffer.size:
            return None
        start = self._addresses[i]
        end = start + self._allocations[start].size
        if address < end:
            return start
        return None

    def plan(self) -> tuple[dict[int, int], int]:
        """Return the offset of each allocation, by its address, and the size of the block."""
        lifetimes = [(own.size, own.first, own.last) for own in self._allocations.values()]
        offsets, size = plan_offsets(lifetimes)
        by_address = zip(self._allocations, offsets, strict=True)
        return dict(by_address), size


def plan_offsets(lifetimes: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Return offsets at which allocations that are live at the same time do not overlap.

    Allocations (bytes, first call, last call) are placed in the order of their first call, each
    into the smallest gap between the ones still live. The size of the block is returned as well.
    """
    offsets = [0] * len(lifetimes)
    live: list[tuple[int, int, int]] = []  # (offset, end, last call), sorted by offset
    size = 0
    # As the replay meets them: what has ended by then leaves its place free.
    by_first_call = sorted(range(len(lifetimes)), key=lambda i: lifetimes[i][1])
    for i in by_first_call:
        length, first, last = lifetimes[i]
        length = -(-length // ALIGN) * ALIGN  # rounded up
        live = [entry for entry in live if entry[2] >= first]
        best: tuple[int, int] | None = None  # (size, begin) of the smallest gap that is enough
        end = 0
        for begin, next_end, _ in live:
            gap = (begin - end, end)
            is_enough = gap[0] >= length
            if is_enough and (best is None or gap < best):
                best = gap
            end = next_end
        offset = end
        if best is not None:
            offset = best[1]
        offsets[i] = offset
        bisect.insort(live, (offset, offset + length, last))
        size = max(size, offset + length)
    return offsets, size


class MemoryBlock:
    """One block of memory that holds the intermediate results of a replayed step."""

    def __init__(self, size: int):
        self.size = size
        self._block = torch.empty(size, dtype=torch.uint8)
        self._bytes = self._block.numpy()

    def relocate(self, buffer: Any, trace: MemoryTrace, offsets: dict[int, int]) -> Any:
        """Return a buffer of the same shape, strides and type inside the block.

        A buffer that is not part of a recorded allocation is returned unchanged.
        """
        start = trace.start_of(buffer)
        if start is None:
            return buffer
        if isinstance(buffer, Tensor):
            first = offsets[start] // buffer.element_size()
            element = first + buffer.storage_offset()
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

_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
"""Numbers of glibc's malloc.h."""


def retain_freed_memory() -> bool:
    """Configure glibc to retain freed memory; return False if there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; on Windows CDLL(None) fails
        return False
    # malloc gives back what is freed at the top of the heap: each step would ask for it again.
    if not mallopt(_TRIM_THRESHOLD, MAX_UNUSED):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, MAX_BLOCK))


aten: Any = torch.ops.aten
FACTORY = {"dtype", "layout", "device", "pin_memory", "memory_format"}
"""Arguments that describe a new tensor, not its content."""
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {
    "zeros": 0,
    "zeros_like": 0,
    "new_zeros": 0,
    "ones": 1,
    "ones_like": 1,
    "new_ones": 1,
}
COPIED = {"clone", "_to_copy"}

T = TypeVar("T")


class Operation:
    """One call of a torch operation: its arguments and its result."""

    def __init__(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any):
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self.inputs = leaves((args, kwargs), Tensor)
        """All tensors among the arguments."""
        self.outputs = leaves(result, Tensor)
        """All tensors in the result."""

    @property
    def computes(self) -> bool:
        """Whether a replay needs this call; False for views and for uninitialised tensors."""
        if _mutates(self.op):
            return True
        if _name(self.op) in EMPTY:
            return False
        # Results that only view their inputs were relocated with them: nothing to run.
        given = set(map(_storage, self.inputs))
        return not given.issuperset(map(_storage, self.outputs))

    def relocated(self, relocate: Callable[[Any], Any]) -> "Operation":
        """Return the operation with `relocate` applied to every tensor."""
        args = tree_map_only(Tensor, relocate, self.args)
        kwargs = tree_map_only(Tensor, relocate, self.kwargs)
        result = tree_map_only(Tensor, relocate, self.result)
        return Operation(self.op, args, kwargs, result)

    def replay_function(self) -> Callable[[], object]:
        """Return a function that performs the operation again and writes into `outputs`."""
        outputs = self.outputs
        name = _name(self.op)
        if _mutates(self.op):
            return functools.partial(self.op, *self.args, **self.kwargs)
        if name in FILLED:
            return functools.partial(aten.fill_.Scalar, outputs[0], FILLED[name])
        if name in COPIED:
            return functools.partial(aten.copy_.default, outputs[0], self.args[0])
        variant = _out_variant(self.op)
        if variant is not None and len(variant[1]) == len(outputs):
            op, out_names = variant
            kwargs = dict(zip(out_names, outputs, strict=True))
            for key, value in self.kwargs.items():
                if key not in FACTORY:
                    kwargs[key] = value
            return functools.partial(op, *self.args, **kwargs)
        # Without such a variant the result is computed anew, and copied.
        return self._compute_and_copy

    def _compute_and_copy(self):
        result = self.op(*self.args, **self.kwargs)
        for output, own in zip(self.outputs, leaves(result, Tensor), strict=True):
            output.copy_(own)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def leaves(tree: Any, kind: type[T]) -> list[T]:
    """Return all instances of a type in nested tuples, lists and dictionaries."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, kind)]


@functools.cache
def returns_views(op: OpOverload) -> bool:
    """Whether every result is a view of an argument, so that no memory is read or written."""
    returns = op._schema.returns
    if not returns or _mutates(op):
        return False
    return all(value.alias_info for value in returns)


@functools.cache
def _name(op: OpOverload) -> str:
    return op._schema.name.removeprefix("aten::")


@functools.cache
def _mutates(op: OpOverload) -> bool:
    return any(arg.alias_info and arg.alias_info.is_write for arg in op._schema.arguments)


@functools.cache
def _out_variant(op: OpOverload) -> tuple[OpOverload, list[str]] | None:
    """Return the overload that writes to given tensors, and the names of these arguments."""
    own = {_signature(arg) for arg in op._schema.arguments if arg.name not in FACTORY}
    for overload in op.overloadpacket.overloads():
        variant = getattr(op.overloadpacket, overload)
        out_names = []
        taken = set()
        required = set()
        for arg in variant._schema.arguments:
            if arg.is_out:
                out_names.append(arg.name)
                continue
            taken.add(_signature(arg))
            if not arg.has_default_value():
                required.add(_signature(arg))
        # Arguments that the operation does not have must have a default.
        if out_names and required <= own <= taken:
            return variant, out_names
    return None


def _signature(argument: Any) -> tuple[str, str]:
    return argument.name, str(argument.type)


REASONS = {
    torch.Tag.data_dependent_output: "reads values",
    torch.Tag.dynamic_output_shape: "has a result whose shape depends on values",
    torch.Tag.nondeterministic_seeded: "draws random numbers",
}
"""Tags of operations that differ from step to step, and why."""
HEADROOM = 2
"""Size of the memory block relative to the need of the first recording; spare pages are free."""


class OperationRecorder(Recorder):
    """A recorder for CPUs; all its recordings share one memory block."""

    _block: MemoryBlock | None = None

    def record(self, work: Work) -> Work:
        """Perform the work; return a function that replays it."""
        recording = _Recording()
        with recording, record_kernels(recording.add_kernel):
            work()
        if recording.reason:
            raise RecordingError(recording.reason)
        trace = recording.trace
        offsets, size = trace.plan()
        if self._block is None or self._block.size < size:
            # Recordings of all shapes share the block; with room to spare it is seldom replaced.
            self._block = MemoryBlock(HEADROOM * size)
        relocate = functools.partial(self._block.relocate, trace=trace, offsets=offsets)
        calls = recording.replay_functions(relocate)
        # References of the recording would count as alive.
        recording.calls.clear()
        if trace.any_alive():
            raise RecordingError("it keeps a result of one step for the next")

        @torch.no_grad()
        def replay():
            for call in calls:
                call()

        return replay


class _Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls: list[Operation | tuple[Kernel, Sequence[Any]]] = []
        self.trace = MemoryTrace()
        self.reason = ""  # why the work cannot be replayed

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The compiler is not in use, and telling it to skip this mode would import it: seconds.
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        if returns_views(func):
            return func(*args, **kwargs)
        reason = _reason(func)
        # The first reason is kept: it is logged.
        if reason and not self.reason and not _is_integer_index(func, args):
            self.reason = f"{func} {reason}"
        result = func(*args, **kwargs)
        call = Operation(func, args, kwargs, result)
        for tensor in call.inputs:
            self.trace.add_use(tensor, len(self.calls))
        for tensor in call.outputs:
            self.trace.add_result(tensor, len(self.calls))
        self.calls.append(call)
        return result

    def add_kernel(self, kernel: Kernel, args: Sequence[Any]):
        for array in leaves(args, np.ndarray):
            # Kernels write into arrays that torch allocated: these must live until the kernel has
            # run.
            self.trace.add_use(array, len(self.calls))
        self.calls.append((kernel, args))

    def replay_functions(self, relocate: Callable[[Any], Any]) -> list[Callable[[], object]]:
        """Return one function per call that computes, on relocated buffers."""
        functions = []
        for call in self.calls:
            if isinstance(call, tuple):
                kernel, args = call
                relocated = tree_map_only(np.ndarray, relocate, args)
                functions.append(functools.partial(_run_kernel, kernel, relocated))
            elif call.computes:
                functions.append(call.relocated(relocate).replay_function())
        return functions


@functools.cache
def _reason(op: OpOverload) -> str:
    for tag, reason in REASONS.items():
        if tag in op.tags:
            return reason
    return ""


def _is_integer_index(op: OpOverload, args: Any) -> bool:
    """True for `aten.index` with integer indices: the shape of its result is fixed."""
    if op is not torch.ops.aten.index.Tensor:
        return False
    masks = {torch.bool, torch.uint8}  # an index of zeros and ones is a mask, too
    kinds = {index.dtype for index in leaves(args[1], Tensor)}
    return masks.isdisjoint(kinds)


def _run_kernel(kernel: Kernel, args: Sequence[Any]):
    if kernel(*args) is False:
        raise IndexError("a token id of this batch is outside the model's tables")
