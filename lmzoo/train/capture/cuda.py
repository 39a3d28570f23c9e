"""A recorder that uses CUDA graphs.

Ng and Ranganathan et al. 2021, "Accelerating PyTorch with CUDA Graphs".
"""

import contextlib
import traceback
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lmzoo.base.memory import gc_disabled
from lmzoo.train.capture.recorder import RecordingError, Work

OTHERS = (str(Path(torch.__file__).parent), warnings.__file__)
"""Code that only passes a warning on."""


class CudaGraphs:
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
