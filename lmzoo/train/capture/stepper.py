"""Does the steps of an epoch, recorded where the device or who trains has a recorder."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from lmzoo.train.capture.cuda import CudaGraphs
from lmzoo.train.capture.recorder import Column, Recorder, RecordingError, Step, Work

LOG = logging.getLogger("lmzoo.train.capture")

MOST = 64
"""Recordings kept; batches of further shapes are trained as they are."""


def recorder(device: torch.device) -> Recorder | None:
    """What records the steps of any model on this device; None where nothing does."""
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
        otherwise: Recorder | None = None,
    ) -> None:
        """`what` is trained, for the log; `piling`: its gradients outlast a step.

        Where nothing records the steps of any model, `otherwise` records this one's.
        """
        self._optimiser, self._device, self._what = optimiser, device, what
        self._piling = piling
        self._recorder = recorder(device) or otherwise
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
        return self._recorder.multiple if self._recorder else 1

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
        beside = torch.tensor(rates, dtype=self._recorder.rates, device=self._device)
        with capturable(self._optimiser):
            for rate, columns in zip(beside.unbind(), batches, strict=True):
                self._one(step, (rate, *columns))

    def _one(self, step: Step, columns: Sequence[Column]) -> None:
        if self._recorder is None:  # found out in this epoch
            step(*columns)
            return
        shape = tuple(None if c is None else (c.shape, c.dtype) for c in columns)
        if shape not in self._recorded:
            if self._seen[shape] < self._recorder.warm or len(self._recorded) >= MOST:
                self._warm(self._recorder, shape, lambda: step(*columns))
                return
            done = self._recorder.does
            try:
                self._recorded[shape] = self._record(self._recorder, step, columns)
            except RecordingError as error:
                self._give_up(str(error))
                if not done:
                    step(*columns)
                return
            if done:
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
        if reason and self._seen[shape] == recorder.warm:
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
