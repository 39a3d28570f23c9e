"""Run the training steps of an epoch: record one for each batch shape, and replay it afterwards.

    step(rate, *columns)    the first steps of a shape run normally; then one is recorded
    replay                  copy the columns into the recorded buffers, run the recorded operations

A step of a small recurrent model is hundreds of short operations, and Python takes longer to issue
them than the device takes to run them. A replayed step runs no Python.

Everything that differs between steps is an input: the columns of the batch and the learning rate.
What a step changes (weights, optimiser state, sums) stays at the same memory addresses. A step that
cannot be recorded runs normally, and one log line gives the reason: it synchronises with the
device (`.item()`, shapes that depend on values), or it draws from the CPU's random generator, and
every replay would repeat the draw.

The recorder of GPUs makes CUDA graphs (Ng and Ranganathan et al. 2021, "Accelerating PyTorch with
CUDA Graphs"). `pack_recorder.py` records on CPUs.
"""

import contextlib
import functools
import logging
import traceback
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()

    def run(self, work: Work) -> str:
        """Run the work on the side stream; return where it synchronises with the device, or ''."""
        current = torch.cuda.current_stream(self._device)
        mode = torch.cuda.get_sync_debug_mode()
        # The work reads what the caller's stream has written.
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), synchronisations() as places:
            torch.cuda.set_sync_debug_mode("warn")
            try:
                work()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        current.wait_stream(self._stream)
        if places:
            return f"it synchronises with the device at {places[0]}"
        return ""

    def record(self, work: Work) -> Work:
        """Capture the work as a CUDA graph without performing it; return the graph's replay."""
        if not self._graphs:
            # One pool: recordings are replayed one after another and may share memory.
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
            # Graphs that share the pool are of no use after a failed capture.
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
    places = []

    def show(message: Warning | str, *args: Any, **options: Any):
        text = str(message)
        if "synchronizing CUDA operation" in text:
            # The warning names the innermost frame, which is torch's own inside a device scope.
            frames = traceback.extract_stack()[:-1]
            while frames[-1].filename.startswith(OTHERS):
                frames.pop()
            last = frames[-1]
            places.append(f"{Path(last.filename).name}:{last.lineno}")
        elif "without CUDA graph capture" not in text:  # expected: the work is not yet captured
            before(message, *args, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning
        warnings.showwarning = show
        yield places


LOG = logging.getLogger("lmzoo.train.stepper")

MAX_RECORDINGS = 64
"""Maximum number of recorded shapes; steps of further shapes run normally."""

_cuda_graphs = functools.cache(CudaGraphs)


def device_recorder(device: torch.device) -> Recorder | None:
    """Return the recorder that works for every model on this device; None if there is none."""
    if device.type == "cuda":
        return _cuda_graphs(device)
    return None


class Stepper:
    """Runs one step per batch; records each batch shape and replays it later."""

    def __init__(
        self,
        optimiser: torch.optim.Optimizer | None,
        device: torch.device,
        name: str,
        *,
        accumulates: bool = False,
        records: bool = True,
        fallback: Recorder | None = None,
    ):
        """Choose the recorder of the device, or `fallback` if the device has none.

        `accumulates`: gradients accumulate over several steps. `records`: steps may be
        recorded; not if a step reads a state that the step before left. `name` is for the log.
        Without an optimiser of torch, all that a step changes stays at its addresses.
        """
        self._optimiser = optimiser
        self._device = device
        self._name = name
        self._accumulates = accumulates
        self._recorder = None
        if records:
            self._recorder = device_recorder(device)
            if self._recorder is None:
                self._recorder = fallback
        self._recordings: dict[Any, tuple[Sequence[Column], Work]] = {}
        # By shape: kernels are compiled, and caches filled, for each anew.
        self._warmups: Counter[Any] = Counter()
        self._recorded_addresses: list[int] = []

    @property
    def replays(self) -> bool:
        """Whether steps are recorded and replayed; False once a recording has failed."""
        return self._recorder is not None

    @property
    def few_shapes(self) -> bool:
        """Whether batches should have few shapes."""
        if self._recorder is None:
            return False
        return self._recorder.few_shapes

    def run_epoch(self, step: Step, rates: Sequence[Any], batches: Iterable[Sequence[Column]]):
        """Call `step(rate, *columns)` for each batch, or replay it.

        The step must be the same in every epoch. A rate is a number, or one per pack member.
        """
        # Recordings of an earlier epoch hold memory that nothing will use.
        if self._recorder is None:
            self._recordings.clear()
            for rate, columns in zip(rates, batches, strict=True):
                step(rate, *columns)
            return
        if self._recorded_addresses != self._addresses():
            self._recordings.clear()  # weights or optimiser state were replaced
        rate_rows = torch.tensor(rates, dtype=self._recorder.rate_dtype, device=self._device)
        with capturable(self._optimiser):
            for rate, columns in zip(rate_rows.unbind(), batches, strict=True):
                self.run_step(step, (rate, *columns))

    def run_step(self, step: Step, columns: Sequence[Column]):
        """Call `step(*columns)`, or replay it.

        All other tensors that the step reads must keep their addresses.
        """
        if self._recorder is None:  # recording failed earlier in this epoch
            step(*columns)
            return
        # None and its place are part of the shape, too: the step takes another branch.
        shape = tuple(None if c is None else (c.shape, c.dtype) for c in columns)
        if shape not in self._recordings:
            full = len(self._recordings) >= MAX_RECORDINGS
            if full or self._warmups[shape] < self._recorder.warmup_steps:
                self._warm_up(self._recorder, shape, lambda: step(*columns))
                return
            performed = self._recorder.runs_while_recording
            # Buffers of its own: the next batch is copied into them.
            inputs = [None if column is None else column.clone() for column in columns]
            try:
                replay = self._recorder.record(lambda: step(*inputs))
            except RecordingError as error:
                self._stop_recording(str(error))
                if not performed:
                    step(*columns)
                return
            self._recordings[shape] = inputs, replay
            self._recorded_addresses = self._addresses()
            if performed:
                return
        buffers, replay = self._recordings[shape]
        for buffer, column in zip(buffers, columns, strict=True):
            if buffer is not None and column is not None:
                buffer.copy_(column)
        replay()

    def _warm_up(self, recorder: Recorder, shape: Any, work: Work):
        """Run the step normally; stop recording if its last warm-up shows a reason."""
        # Only the CPU's: graphs replay draws of the GPU's generator correctly.
        generator_state = torch.get_rng_state()
        reason = recorder.run(work)
        self._warmups[shape] += 1
        draws = not generator_state.equal(torch.get_rng_state())
        if draws and not reason:
            # A replay would draw nothing, and every batch would have the same noise.
            reason = "it draws from the CPU's random generator"
        if reason and self._warmups[shape] == recorder.warmup_steps:
            self._stop_recording(reason)

    def _stop_recording(self, reason: str):
        LOG.warning("the steps of %s are not replayed: %s", self._name, reason)
        self._recorder = None

    def _addresses(self) -> list[int]:
        """Return the addresses of all tensors that a step changes and the next step reads."""
        if self._optimiser is None:
            return []
        changed = []
        for group in self._optimiser.param_groups:
            for weight in group["params"]:
                changed.append(weight)
                changed += self._optimiser.state.get(weight, {}).values()
                # Gradients that do not accumulate are new tensors at every step.
                if self._accumulates and weight.grad is not None:
                    changed.append(weight.grad)
        return [tensor.data_ptr() for tensor in changed]


@contextlib.contextmanager
def capturable(optimiser: torch.optim.Optimizer | None) -> Iterator[None]:
    """Make the optimiser `capturable` inside the context: it then counts steps on the device."""
    if optimiser is None:
        yield
        return
    for group in optimiser.param_groups:
        group["capturable"] = True
        for weight in group["params"]:
            state = optimiser.state.get(weight, {})
            if "step" in state:
                state["step"] = state["step"].to(weight.device)
    try:
        yield
    finally:
        for group in optimiser.param_groups:  # checkpoints contain the value False
            group["capturable"] = False
