"""A recorder that uses CUDA graphs.

Ng and Ranganathan et al. 2021, "Accelerating PyTorch with CUDA Graphs".
"""

import warnings
from collections.abc import Iterable
from pathlib import Path

import torch

from lmzoo.train.capture.recorder import RecordingError, Work


class CudaGraphs:
    """Records CUDA graphs on a side stream; a process needs one recorder per GPU.

    All graphs share one memory pool. This is safe because no result of a step is in the pool.
    """

    warmup_steps = 2
    """The first step makes lazy allocations; the second shows whether the step synchronises."""
    few_shapes = True
    rate_dtype = torch.float32
    runs_while_recording = False

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, work: Work) -> str:
        """Run the work on the side stream; return where it synchronises with the device, or ''."""
        current, mode = torch.cuda.current_stream(self._device), torch.cuda.get_sync_debug_mode()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                work()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        current.wait_stream(self._stream)
        return find_synchronisation(caught)

    def record(self, work: Work) -> Work:
        """Capture the work as a CUDA graph without performing it; return the graph's replay."""
        graph = torch.cuda.CUDAGraph()
        # The outer `stream` restores the current stream even if the capture fails.
        try:
            with (
                torch.cuda.stream(self._stream),
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
            ):
                work()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise RecordingError(str(error).strip().partition("\n")[0]) from error
        return graph.replay


def find_synchronisation(caught: Iterable[warnings.WarningMessage]) -> str:
    """Return where the first synchronisation happened, or ''; re-issue unrelated warnings."""
    reason = ""
    for w in caught:
        text, place = str(w.message), f"{Path(w.filename).name}:{w.lineno}"
        if "synchronizing CUDA operation" in text:
            reason = reason or f"it synchronises with the device at {place}"
        elif "without CUDA graph capture" not in text:  # expected: the work is not yet captured
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return reason
