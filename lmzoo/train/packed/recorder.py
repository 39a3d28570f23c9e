"""A pack's step recorded on the processor.

    record    the step is done, and every operation of torch and every compiled loop is written
              down, with what it was given and what it returned
    replay    those of them that compute, on the same memory, in the same order

Between the operations of a few small members there is more Python than arithmetic: `vmap`,
autograd, hooks, views. All of it is the same at every step of a shape, so it is done once. The
numbers are the same bits: it is the same operations. What the step makes for itself lies in one
block of memory (`arena.py`).

Members alone are not recorded: their optimisers are torch's, which count steps on the host.

The idea is that of CUDA graphs, see `lmzoo/capture`.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from lmzoo.kernels.dispatch import Loop, record_kernels
from lmzoo.train.capture.recorder import RecordingError, Work
from lmzoo.train.packed.memory_plan import MemoryBlock, MemoryTrace
from lmzoo.train.packed.replay import Operation, leaves, looks, mapped

REASONS = {
    torch.Tag.data_dependent_output: "reads numbers",
    torch.Tag.dynamic_output_shape: "makes a shape that depends on numbers",
    torch.Tag.nondeterministic_seeded: "draws",
}
"""Operations that are not the same at every step."""
ROOM = 2
"""An arena is so many times what its first recording needs; what is not used costs nothing."""


class OperationRecorder:
    """A recorder whose recordings share one memory plan."""

    warm = 1
    multiple = 1
    rates = torch.float64
    does = True

    def __init__(self) -> None:
        self._arena: MemoryBlock | None = None

    def run(self, work: Work) -> str:
        """Do the work as it is; what is wrong with it comes out when it is recorded."""
        work()
        return ""

    def record(self, work: Work) -> Work:
        """Do the work; what does it again."""
        tape = _Tape()
        with tape, record_kernels(tape.listen):
            work()
        if tape.reason:
            raise RecordingError(tape.reason)
        pieces = tape.pieces
        offsets, size = pieces.laid()
        if self._arena is None or self._arena.size < size:
            self._arena = MemoryBlock(ROOM * size)
        move = functools.partial(self._arena.move, pieces=pieces, offsets=offsets)
        again = tape.again(move)
        tape.calls.clear()
        if pieces.kept():
            raise RecordingError("it keeps what it made from one step to the next")

        @torch.no_grad()
        def replay() -> None:
            for one in again:
                one()

        return replay


@functools.cache
def _reason(kind: OpOverload) -> str:
    return next((reason for tag, reason in REASONS.items() if tag in kind.tags), "")


def _by_number(kind: OpOverload, given: Any) -> bool:
    """Whether it takes what numbered places hold, as much as there are numbers."""
    if kind is not torch.ops.aten.index.Tensor:
        return False
    masks = (torch.bool, torch.uint8)
    return not any(isinstance(one, Tensor) and one.dtype in masks for one in given[1])


class _Tape(TorchDispatchMode):
    """Writes down every operation, and every loop that it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Operation | tuple[Loop, tuple[Any, ...]]] = []
        self.pieces = MemoryTrace()
        self.reason = ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch's compiler is not at work here, and to be imported and told so takes it seconds.
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if looks(func):
            return func(*args, **(kwargs or {}))
        if (reason := _reason(func)) and not _by_number(func, args):
            self.reason = self.reason or f"{func} {reason}"
        found = func(*args, **(kwargs or {}))
        call = Operation(func, args, kwargs or {}, found)
        for tensor in call.read:
            self.pieces.used(tensor, len(self.calls))
        for tensor in call.made:
            self.pieces.made(tensor, len(self.calls))
        self.calls.append(call)
        return found

    def listen(self, loop: Loop, given: tuple[Any, ...]) -> None:
        """A loop is about to run."""
        for array in leaves(given, np.ndarray):
            self.pieces.used(array, len(self.calls))
        self.calls.append((loop, given))

    def again(self, move: Callable[[Any], Any]) -> list[Callable[[], object]]:
        """What does all of it again, on memory that was moved."""
        found: list[Callable[[], object]] = []
        for call in self.calls:
            if isinstance(call, tuple):
                loop, given = call
                moved = mapped(given, np.ndarray, move)
                found.append(functools.partial(_run, loop, moved))
            elif call.computes:
                found.append(call.moved(move).again())
        return found


def _run(loop: Loop, given: tuple[Any, ...]) -> None:
    if loop(*given) is False:
        raise IndexError("a word of this batch has no row in the model's tables")
