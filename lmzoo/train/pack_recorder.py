"""Record a training step of a pack on a CPU, and replay it.

    record    perform the step, and store every torch operation and every kernel call with its
              arguments and results
    replay    perform the calls that compute something, in the same order, each into the memory of
              its recorded result

A step of a few small members spends more time in Python (`vmap`, autograd, hooks, views) than in
arithmetic. The Python part is the same in every step of one batch shape, so it runs only once.
A replay gives the same bits, because it performs the same operations. Its intermediate results
share one memory block (`memory_plan.py`).

The idea is that of CUDA graphs, see `lmzoo/train/recorder.py`. Runs that are trained alone are not
recorded: their torch optimisers count steps in Python.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from lmzoo.kernels.dispatch import Kernel, record_kernels
from lmzoo.train.memory_plan import MemoryBlock, MemoryTrace
from lmzoo.train.recorder import Recorder, RecordingError, Work

aten: Any = torch.ops.aten
FACTORY = {"dtype", "layout", "device", "pin_memory", "memory_format"}
"""Arguments that describe a new tensor, not its content."""
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
COPIED = {"clone", "_to_copy"}

T = TypeVar("T")


class Operation:
    """One call of a torch operation: its arguments and its result."""

    def __init__(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        self.op, self.args, self.kwargs, self.result = op, args, kwargs, result
        self.inputs = leaves((args, kwargs), Tensor)
        """All tensors among the arguments."""
        self.outputs = leaves(result, Tensor)
        """All tensors in the result."""

    @property
    def computes(self) -> bool:
        """Whether a replay needs this call; False for views and for uninitialised tensors."""
        if _mutates(self.op):
            return True
        storages = {tensor.untyped_storage().data_ptr() for tensor in self.inputs}
        views = all(tensor.untyped_storage().data_ptr() in storages for tensor in self.outputs)
        return not views and _name(self.op) not in EMPTY

    def relocated(self, relocate: Callable[[Any], Any]) -> "Operation":
        """Return the operation with `relocate` applied to every tensor."""
        trees = (self.args, self.kwargs, self.result)
        return Operation(self.op, *(map_leaves(tree, Tensor, relocate) for tree in trees))

    def replay_function(self) -> Callable[[], object]:
        """Return a function that performs the operation again and writes into `outputs`."""
        outputs, name = self.outputs, _name(self.op)
        if _mutates(self.op):
            return functools.partial(self.op, *self.args, **self.kwargs)
        if name in FILLED:
            return functools.partial(aten.fill_.Scalar, outputs[0], FILLED[name])
        if name in COPIED:
            return functools.partial(aten.copy_.default, outputs[0], self.args[0])
        if variant := _out_variant(self.op):
            op, out_names = variant
            if len(out_names) == len(outputs):
                kwargs = {key: value for key, value in self.kwargs.items() if key not in FACTORY}
                out_kwargs = dict(zip(out_names, outputs, strict=True))
                return functools.partial(op, *self.args, **kwargs, **out_kwargs)
        return self._compute_and_copy

    def _compute_and_copy(self) -> None:
        results = leaves(self.op(*self.args, **self.kwargs), Tensor)
        for output, result in zip(self.outputs, results, strict=True):
            output.copy_(result)


def leaves(tree: Any, kind: type[T]) -> list[T]:
    """Return all instances of a type in nested tuples, lists and dictionaries."""
    if isinstance(tree, kind):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return []
    return [leaf for subtree in tree for leaf in leaves(subtree, kind)]


def map_leaves(tree: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """Return the same tree with the function applied to all instances of a type."""
    if isinstance(tree, kind):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(value, kind, function) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        items = [map_leaves(item, kind, function) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree


@functools.cache
def returns_views(op: OpOverload) -> bool:
    """Whether every result is a view of an argument, so that no memory is read or written."""
    returns = op._schema.returns
    return bool(returns) and all(value.alias_info for value in returns) and not _mutates(op)


@functools.cache
def _name(op: OpOverload) -> str:
    return op._schema.name.removeprefix("aten::")


@functools.cache
def _mutates(op: OpOverload) -> bool:
    return any(arg.alias_info and arg.alias_info.is_write for arg in op._schema.arguments)


@functools.cache
def _out_variant(op: OpOverload) -> tuple[OpOverload, list[str]] | None:
    """Return the overload that writes to given tensors, and the names of these arguments."""
    required = [
        (arg.name, str(arg.type)) for arg in op._schema.arguments if arg.name not in FACTORY
    ]
    for overload in op.overloadpacket.overloads():
        variant = getattr(op.overloadpacket, overload)
        out_names = [arg.name for arg in variant._schema.arguments if arg.is_out]
        inputs = [arg for arg in variant._schema.arguments if not arg.is_out]
        accepted = [(arg.name, str(arg.type)) for arg in inputs]
        extra = [arg for arg in inputs if (arg.name, str(arg.type)) not in required]
        if (
            out_names
            and all(arg in accepted for arg in required)
            and all(arg.has_default_value() for arg in extra)
        ):
            return variant, out_names
    return None


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
            self._block = MemoryBlock(HEADROOM * size)
        calls = recording.replay_functions(
            functools.partial(self._block.relocate, trace=trace, offsets=offsets)
        )
        recording.calls.clear()
        if trace.any_alive():
            raise RecordingError("it keeps a result of one step for the next")

        @torch.no_grad()
        def replay() -> None:
            for call in calls:
                call()

        return replay


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Operation | tuple[Kernel, tuple[Any, ...]]] = []
        self.trace = MemoryTrace()
        self.reason = ""  # why the work cannot be replayed

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The compiler is not in use, and telling it to skip this mode would import it: seconds.
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if returns_views(func):
            return func(*args, **(kwargs or {}))
        if (reason := _reason(func)) and not _is_integer_index(func, args):
            self.reason = self.reason or f"{func} {reason}"
        result = func(*args, **(kwargs or {}))
        call = Operation(func, args, kwargs or {}, result)
        for tensor in call.inputs:
            self.trace.add_use(tensor, len(self.calls))
        for tensor in call.outputs:
            self.trace.add_result(tensor, len(self.calls))
        self.calls.append(call)
        return result

    def add_kernel(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        """Store a kernel call."""
        for array in leaves(args, np.ndarray):
            self.trace.add_use(array, len(self.calls))
        self.calls.append((kernel, args))

    def replay_functions(self, relocate: Callable[[Any], Any]) -> list[Callable[[], object]]:
        """Return one function per call that computes, on relocated buffers."""
        functions: list[Callable[[], object]] = []
        for call in self.calls:
            if isinstance(call, tuple):
                kernel, args = call
                relocated = map_leaves(args, np.ndarray, relocate)
                functions.append(functools.partial(_run_kernel, kernel, relocated))
            elif call.computes:
                functions.append(call.relocated(relocate).replay_function())
        return functions


@functools.cache
def _reason(op: OpOverload) -> str:
    return next((reason for tag, reason in REASONS.items() if tag in op.tags), "")


def _is_integer_index(op: OpOverload, args: Any) -> bool:
    """True for `aten.index` with integer indices: the shape of its result is fixed."""
    if op is not torch.ops.aten.index.Tensor:
        return False
    masks = (torch.bool, torch.uint8)
    return not any(isinstance(index, Tensor) and index.dtype in masks for index in args[1])


def _run_kernel(kernel: Kernel, args: tuple[Any, ...]) -> None:
    if kernel(*args) is False:
        raise IndexError("a token id of this batch is outside the model's tables")
