"""Run the training steps of an epoch, recorded and replayed if there is a recorder."""

import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from lmzoo.train.recorder import Column, CudaGraphs, Recorder, RecordingError, Step, Work

LOG = logging.getLogger("lmzoo.train.stepper")

MAX_RECORDINGS = 64
"""Maximum number of recorded shapes; steps of further shapes run normally."""

_cuda_graphs = functools.cache(CudaGraphs)


def device_recorder(device: torch.device) -> Recorder | None:
    """Return the recorder that works for every model on this device; None if there is none."""
    return _cuda_graphs(device) if device.type == "cuda" else None


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
    ) -> None:
        """Choose the recorder of the device, or `fallback` if the device has none.

        `accumulates`: gradients accumulate over several steps. `records`: steps may be
        recorded; not if a step reads a state that the step before left. `name` is for the log.
        Without an optimiser of torch, all that a step changes stays at its addresses.
        """
        self._optimiser, self._device, self._name = optimiser, device, name
        self._accumulates = accumulates
        self._recorder = (device_recorder(device) or fallback) if records else None
        self._recordings: dict[Any, tuple[Sequence[Column], Work]] = {}
        self._warmups: Counter[Any] = Counter()
        self._recorded_addresses: list[int] = []

    @property
    def replays(self) -> bool:
        """Whether steps are recorded and replayed; False once a recording has failed."""
        return self._recorder is not None

    @property
    def few_shapes(self) -> bool:
        """Whether batches should have few shapes."""
        return self._recorder is not None and self._recorder.few_shapes

    def run_epoch(
        self, step: Step, rates: Sequence[Any], batches: Iterable[Sequence[Column]]
    ) -> None:
        """Call `step(rate, *columns)` for each batch, or replay it.

        The step must be the same in every epoch. A rate is a number, or one per pack member.
        """
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

    def run_step(self, step: Step, columns: Sequence[Column]) -> None:
        """Call `step(*columns)`, or replay it.

        All other tensors that the step reads must keep their addresses.
        """
        if self._recorder is None:  # recording failed earlier in this epoch
            step(*columns)
            return
        shape = tuple(None if c is None else (c.shape, c.dtype) for c in columns)
        if shape not in self._recordings:
            full = len(self._recordings) >= MAX_RECORDINGS
            if full or self._warmups[shape] < self._recorder.warmup_steps:
                self._warm_up(self._recorder, shape, lambda: step(*columns))
                return
            performed = self._recorder.runs_while_recording
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

    def _warm_up(self, recorder: Recorder, shape: Any, work: Work) -> None:
        """Run the step normally; stop recording if its last warm-up shows a reason."""
        generator_state = torch.get_rng_state()
        reason = recorder.run(work)
        self._warmups[shape] += 1
        if not generator_state.equal(torch.get_rng_state()):
            reason = reason or "it draws from the CPU's random generator"
        if reason and self._warmups[shape] == recorder.warmup_steps:
            self._stop_recording(reason)

    def _stop_recording(self, reason: str) -> None:
        LOG.warning("the steps of %s are not replayed: %s", self._name, reason)
        self._recorder = None

    def _addresses(self) -> list[int]:
        """Return the addresses of all tensors that a step changes and the next step reads."""
        if self._optimiser is None:
            return []
        state = self._optimiser.state
        weights = [weight for group in self._optimiser.param_groups for weight in group["params"]]
        states = [value for weight in weights for value in state.get(weight, {}).values()]
        gradients = [w.grad for w in weights if self._accumulates and w.grad is not None]
        return [tensor.data_ptr() for tensor in (*weights, *states, *gradients)]


@contextlib.contextmanager
def capturable(optimiser: torch.optim.Optimizer | None) -> Iterator[None]:
    """Make the optimiser `capturable` inside the context: it then counts steps on the device."""
    groups = optimiser.param_groups if optimiser else []
    for group in groups:
        group["capturable"] = True
        for weight in group["params"]:
            state = optimiser.state.get(weight, {}) if optimiser else {}
            if "step" in state:
                state["step"] = state["step"].to(weight.device)
    try:
        yield
    finally:
        for group in groups:  # checkpoints contain the value False
            group["capturable"] = False
