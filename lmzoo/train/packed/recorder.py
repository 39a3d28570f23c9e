"""Record a training step of a pack on a CPU, and replay it.

    record    perform the step, and store every torch operation and every kernel call with its
              arguments and results
    replay    perform the calls that compute something, in the same order, on the same memory

A step of a few small members spends more time in Python (`vmap`, autograd, hooks, views) than in
arithmetic. The Python part is the same in every step of one batch shape, so it runs only once.
A replay gives the same bits, because it performs the same operations. Its intermediate results
share one memory block (`memory_plan.py`).

The idea is that of CUDA graphs, see `lmzoo/train/capture`. Runs that are trained alone are not
recorded: their torch optimisers count steps in Python.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from lmzoo.kernels.dispatch import Kernel, record_kernels
from lmzoo.train.capture.recorder import RecordingError, Work
from lmzoo.train.packed.memory_plan import MemoryBlock, MemoryTrace
from lmzoo.train.packed.replay import Operation, leaves, map_leaves, returns_views

REASONS = {
    torch.Tag.data_dependent_output: "reads values",
    torch.Tag.dynamic_output_shape: "has a result whose shape depends on values",
    torch.Tag.nondeterministic_seeded: "draws random numbers",
}
"""Tags of operations that differ from step to step, and why."""
HEADROOM = 2
"""Size of the memory block relative to the need of the first recording; spare pages are free."""


class OperationRecorder:
    """A recorder for CPUs; all its recordings share one memory block."""

    warmup_steps = 1
    few_shapes = False
    rate_dtype = torch.float64
    runs_while_recording = True

    def __init__(self) -> None:
        self._block: MemoryBlock | None = None

    def run(self, work: Work) -> str:
        """Run the work normally; only `record` checks whether it can be recorded."""
        work()
        return ""

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
    """Stores every torch operation, and every kernel call that is reported to it."""

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
