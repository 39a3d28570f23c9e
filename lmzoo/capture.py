"""A training step recorded once for each shape of its batch, and replayed from then on.

    step(rate, *columns)    twice as it is; then recorded, reading from buffers of its own
    replay                  columns into the buffers, and one launch for all the operations

A step of a small recurrent model is hundreds of operations, each of which a GPU ends sooner
than the host can start the next. What changes from step to step is in the columns, the
learning rate too; what a step leaves behind (weights, optimiser state, sums) lies in memory
that it found there. A step that cannot be recorded is done as it is, and a line of the log
says why: it waits for the device (`.item()`, shapes that depend on numbers), or it draws
from the host's generator, which would be the same draw at every replay.

CUDA graphs: Ng and Ranganathan et al. 2021, "Accelerating PyTorch with CUDA Graphs".
"""

import contextlib
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

LOG = logging.getLogger("lmzoo.capture")

WARM = 2
"""Steps of a shape before it is recorded: the first makes what is made once, the second shows
whether anything waits."""
MOST = 64
"""Recordings kept; batches of further shapes are trained as they are."""
MULTIPLE = 4
"""Batches are as long as a multiple of so many tokens, so that few shapes come again and again."""

Column = Tensor | None
Work = Callable[[], None]
Step = Callable[..., None]
"""(rate, *columns) -> nothing: all that it does, it does to what lies there."""


@runtime_checkable
class Recorder(Protocol):
    """What can record the operations of a piece of work, such as a CUDA graph."""

    def run(self, work: Work) -> str:
        """Do the work as it is; why it cannot be recorded, or ''."""
        ...

    def record(self, work: Work) -> Work:
        """What does the work again, in the same memory. It has not been done yet.

        Raises:
            RuntimeError: it cannot be recorded.
        """
        ...


def recorder(device: torch.device) -> Recorder | None:
    """What records on this device; None where there is nothing to gain."""
    return CudaGraphs(device) if device.type == "cuda" else None


class Stepper:
    """Does a step for every batch of an epoch, replayed where the device records."""

    def __init__(
        self,
        optimiser: torch.optim.Optimizer,
        device: torch.device,
        what: str,
        *,
        piling: bool = False,
    ) -> None:
        """`what` is trained, for the log; `piling`: its gradients outlast a step."""
        self._optimiser, self._device, self._what = optimiser, device, what
        self._piling = piling
        self._recorder = recorder(device)
        self._recorded: dict[Any, tuple[Sequence[Column], Work]] = {}
        self._seen: Counter[Any] = Counter()
        self._places: list[int] = []

    @property
    def replays(self) -> bool:
        """Whether steps are recorded, as far as is known."""
        return self._recorder is not None

    @property
    def multiple(self) -> int:
        """What the lengths of batches should be multiples of."""
        return MULTIPLE if self.replays else 1

    def epoch(self, step: Step, rates: Sequence[Any], batches: Iterable[Sequence[Column]]) -> None:
        """A step for each batch, `step(rate, *columns)`; a rate is a number or a list of them.

        It is the same step in every epoch.
        """
        if self._recorder is None:
            self._recorded.clear()
            for rate, columns in zip(rates, batches, strict=True):
                step(rate, *columns)
            return
        if self._places != self._where():
            self._recorded.clear()  # weights or state lie elsewhere than when it was recorded
        beside = torch.tensor(rates, dtype=torch.float32, device=self._device)
        with capturable(self._optimiser):
            for rate, columns in zip(beside.unbind(), batches, strict=True):
                self._one(step, (rate, *columns))

    def _one(self, step: Step, columns: Sequence[Column]) -> None:
        if self._recorder is None:  # found out in this epoch
            step(*columns)
            return
        shape = tuple(None if c is None else (c.shape, c.dtype) for c in columns)
        if shape not in self._recorded:
            if self._seen[shape] < WARM or len(self._recorded) >= MOST:
                self._warm(self._recorder, shape, lambda: step(*columns))
                return
            try:
                self._recorded[shape] = self._record(self._recorder, step, columns)
            except RuntimeError as error:
                self._give_up(str(error).strip().partition("\n")[0])
                step(*columns)
                return
        buffers, replay = self._recorded[shape]
        for buffer, column in zip(buffers, columns, strict=True):
            if buffer is not None and column is not None:
                buffer.copy_(column)
        replay()

    def _warm(self, recorder: Recorder, shape: Any, work: Work) -> None:
        drawn = torch.get_rng_state()
        reason = recorder.run(work)
        self._seen[shape] += 1
        if not drawn.equal(torch.get_rng_state()):
            reason = reason or "it draws from the host's generator"
        if reason and self._seen[shape] == WARM:
            self._give_up(reason)

    def _record(
        self, recorder: Recorder, step: Step, columns: Sequence[Column]
    ) -> tuple[Sequence[Column], Work]:
        buffers = [None if column is None else column.clone() for column in columns]
        replay = recorder.record(lambda: step(*buffers))
        self._places = self._where()
        return buffers, replay

    def _give_up(self, reason: str) -> None:
        LOG.warning("the steps of %s are not replayed: %s", self._what, reason)
        self._recorder = None

    def _where(self) -> list[int]:
        """Where everything lies that outlasts a step."""
        groups, state = self._optimiser.param_groups, self._optimiser.state
        weights = [weight for group in groups for weight in group["params"]]
        held = [value for weight in weights for value in state.get(weight, {}).values()]
        piles = [weight.grad for weight in weights if self._piling and weight.grad is not None]
        return [tensor.data_ptr() for tensor in (*weights, *held, *piles)]


@contextlib.contextmanager
def capturable(optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """While it lasts, the optimiser counts its steps beside the weights, not on the host."""
    for group in optimiser.param_groups:
        group["capturable"] = True
        for weight in group["params"]:
            state = optimiser.state.get(weight, {})
            if "step" in state:
                state["step"] = state["step"].to(weight.device)
    try:
        yield
    finally:
        for group in optimiser.param_groups:  # as it is written into checkpoints
            group["capturable"] = False


class CudaGraphs:
    """Records on a stream of its own; all recordings share one pool of memory.

    They may: nothing that a step leaves behind lies in the pool.
    """

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
        """The work as a CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        # The outer `stream` puts the current one back even where a capture ends in an error.
        with (
            torch.cuda.stream(self._stream),
            torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
        ):
            work()
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
