"""Record the operations of a training step once per batch shape, and replay them afterwards.

    step(rate, *columns)    the first steps of a shape run normally; then one is recorded
    replay                  copy the columns into the recorded buffers, run the recorded operations

A step of a small recurrent model is hundreds of short operations, and Python takes longer to issue
them than the device takes to run them. A replayed step runs no Python.

Everything that differs between steps is an input: the columns of the batch and the learning rate.
What a step changes (weights, optimiser state, sums) stays at the same memory addresses. A step that
cannot be recorded runs normally, and one log line gives the reason: it synchronises with the
device (`.item()`, shapes that depend on values), or it draws from the CPU's random generator, and
every replay would repeat the draw.

Here are the interface of a recorder and that of GPUs, CUDA graphs (Ng and Ranganathan et al. 2021,
"Accelerating PyTorch with CUDA Graphs"). `pack_recorder.py` records on CPUs, `stepper.py` runs
the steps of an epoch.
"""

import contextlib
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmzoo.base.memory import gc_disabled

Column = Tensor | None
"""One input of a step: the tokens, the lengths, ...; None if a batch lacks this input."""
Work = Callable[[], None]
Step = Callable[..., None]
"""A training step, `step(rate, *columns)`. It changes existing tensors and returns nothing."""


class Recorder:
    """Records the operations of a function, for example as a CUDA graph."""

    warmup_steps = 1
    """Number of steps of a shape that run normally before one is recorded."""
    few_shapes = False
    """Whether recordings are few and kept: batches have few shapes, and the steps of a pack serve
    other members later (`kept_trainers.py`)."""
    rate_dtype = torch.float64
    """The dtype of the tensor that holds the learning rate."""
    runs_while_recording = True
    """Whether `record` also performs the work, even if it raises a `RecordingError`."""

    def run(self, work: Work) -> str:
        """Run the work normally; return the reason why it cannot be recorded, or ''."""
        work()
        return ""

    def record(self, work: Work) -> Work:
        """Record the work; return a function that replays it on the same memory."""
        raise NotImplementedError


class RecordingError(Exception):
    """The work cannot be recorded; the message gives the reason."""


OTHERS = (str(Path(torch.__file__).parent), warnings.__file__)
"""Code that only passes a warning on."""


class CudaGraphs(Recorder):
    """Records CUDA graphs on a side stream; a process needs one recorder per GPU.

    Graphs share one memory pool. This is safe because no result of a step is in the pool. A pool
    ends with its last graph, and a failed capture ends it for later graphs.
    """

    warmup_steps = 2
    """The first step makes lazy allocations; the second shows whether the step synchronises."""
    few_shapes = True
    rate_dtype = torch.float32
    runs_while_recording = False

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()

    def run(self, work: Work) -> str:
        """Run the work on the side stream; return where it synchronises with the device, or ''."""
        current, mode = torch.cuda.current_stream(self._device), torch.cuda.get_sync_debug_mode()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), synchronisations() as places:
            torch.cuda.set_sync_debug_mode("warn")
            try:
                work()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        current.wait_stream(self._stream)
        return f"it synchronises with the device at {places[0]}" if places else ""

    def record(self, work: Work) -> Work:
        """Capture the work as a CUDA graph without performing it; return the graph's replay."""
        if not self._graphs:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # The outer `stream` restores the current stream even if the capture fails.
        try:
            with (
                gc_disabled(),  # freeing another graph's memory would end the capture
                torch.cuda.stream(self._stream),
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
            ):
                work()
        except torch.OutOfMemoryError:
            self._graphs.clear()
            raise
        except RuntimeError as error:
            self._graphs.clear()
            raise RecordingError(str(error).strip().partition("\n")[0]) from error
        self._graphs.add(graph)
        return graph.replay


@contextlib.contextmanager
def synchronisations() -> Iterator[list[str]]:
    """Collect the places that synchronise; other warnings are shown as before."""
    places: list[str] = []

    def show(message: Warning | str, *args: Any, **options: Any) -> None:
        text = str(message)
        if "synchronizing CUDA operation" in text:
            # The warning names the innermost frame, which is torch's own inside a device scope.
            own = [f for f in traceback.extract_stack()[:-1] if not f.filename.startswith(OTHERS)]
            places.append(f"{Path(own[-1].filename).name}:{own[-1].lineno}")
        elif "without CUDA graph capture" not in text:  # expected: the work is not yet captured
            before(message, *args, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before, warnings.showwarning = warnings.showwarning, show
        yield places
