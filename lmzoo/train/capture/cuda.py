"""Work recorded as CUDA graphs.

Ng and Ranganathan et al. 2021, "Accelerating PyTorch with CUDA Graphs".
"""

import warnings
from collections.abc import Iterable
from pathlib import Path

import torch

from lmzoo.train.capture.recorder import RecordingError, Work


class CudaGraphs:
    """Records on a stream of its own; all recordings share one pool of memory.

    They may: nothing that a step leaves behind lies in the pool.
    """

    warm = 2
    """The first step makes what is made once, the second shows whether anything waits."""
    multiple = 4
    rates = torch.float32
    does = False

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, work: Work) -> str:
        """Do the work on the side stream, listening for what waits for the device."""
        here, mode = torch.cuda.current_stream(self._device), torch.cuda.get_sync_debug_mode()
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                work()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        here.wait_stream(self._stream)
        return waits(said)

    def record(self, work: Work) -> Work:
        """The work as a CUDA graph. It has not been done yet."""
        graph = torch.cuda.CUDAGraph()
        # The outer `stream` puts the current one back even where a capture ends in an error.
        try:
            with (
                torch.cuda.stream(self._stream),
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
            ):
                work()
        except RuntimeError as error:
            raise RecordingError(str(error).strip().partition("\n")[0]) from error
        return graph.replay


def waits(said: Iterable[warnings.WarningMessage]) -> str:
    """Where work first waited for the device, '' if nowhere; other warnings are said again."""
    found = ""
    for one in said:
        text = str(one.message)
        if "synchronizing CUDA operation" in text:
            found = found or f"it waits for the device at {Path(one.filename).name}:{one.lineno}"
        elif "without CUDA graph capture" not in text:  # that it is not yet captured is meant
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return found
