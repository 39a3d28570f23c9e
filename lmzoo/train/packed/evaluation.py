"""Score the same sequences with the weights of all pack members; recorded where steps are."""

from functools import partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.func import vmap

from lmzoo.contract import LanguageModel
from lmzoo.data.batches import iter_batches
from lmzoo.data.corpus import Sequences
from lmzoo.kernels.device import device_scope
from lmzoo.train.capture.stepper import Stepper
from lmzoo.train.evaluate import Losses, compute_losses, count_right
from lmzoo.train.packed.compatibility import make_functional
from lmzoo.train.packed.stacked import StackedParameters

EVALUATION_BATCH = 2000
"""Sequences of all members evaluated at a time; many more would exceed the cache."""
MIN_EVALUATION_BATCH = 100
"""Minimum number of sequences per member evaluated at a time."""


class PackedEvaluation:
    """The step that scores one batch of sequences for all members."""

    def __init__(
        self, stacked: StackedParameters, template: LanguageModel, device: torch.device
    ) -> None:
        self._stacked, self._template, self._device = stacked, template, device
        self._score = make_functional(template, "log_prob")
        self._nll = torch.empty(0, device=device)
        self._stepper = self._new_stepper()

    def losses(self, part: Sequences, room: int) -> list[Losses]:
        """Return the losses of every member; `room` is the size of the largest part to come."""
        self._template.eval()
        count = len(self._stacked.trainings)
        if self._nll.shape[-1] < room:
            shape = len(self._stacked.values), room
            self._nll = torch.empty(shape, dtype=torch.float64, device=self._device)
            self._stepper = self._new_stepper()  # a recorded step writes to the previous memory
        few, trim = self._stepper.few_shapes, not self._template.leaks
        size = max(MIN_EVALUATION_BATCH, EVALUATION_BATCH // len(self._nll))
        order = [*part.lengths.cpu().argsort(stable=True).split(size)]
        if few:
            order = [_fill(rows, size) for rows in order]
        batches = iter_batches(part, order, self._device, trim=trim, few_widths=few)
        for rows, batch in zip(order, batches, strict=True):
            columns = batch.scored, batch.tokens, batch.lengths, *batch.sources
            self._stepper.run_step(self._step, (rows.to(self._device), *columns))
        nll = self._nll[:count, : len(part)].to("cpu", copy=True)  # the next part overwrites it
        pairs = zip(nll, self._count_right(part, count), strict=True)
        return [compute_losses(member, part.counts, right) for member, right in pairs]

    @torch.no_grad()
    def _step(
        self,
        rows: Int[Tensor, "B"],
        scored: Bool[Tensor, "B T"] | None,
        tokens: Int[Tensor, "B T"],
        lengths: Int[Tensor, "B"],
        *sources: Tensor,
    ) -> None:
        """Write the NLL of these rows of the data."""
        score = vmap(self._score, in_dims=(0, *[None] * (2 + len(sources))))
        with device_scope(self._template):
            scores = score(self._stacked.weights, tokens, lengths, *sources)
        if scored is not None:
            scores = scores.where(scored, 0.0)
        self._nll[:, rows] = -scores.double().sum(2)

    def _new_stepper(self) -> Stepper:
        return Stepper(None, self._device, f"the evaluation of {self._template.name}")

    @torch.no_grad()
    def _count_right(self, part: Sequences, count: int) -> list[Tensor | None]:
        """Return `count_right` of every member, one by one; None unless the part is a task."""
        if not part.is_task:
            return [None] * count
        call = make_functional(self._template, "most_probable")
        members = (
            {name: weight[p] for name, weight in self._stacked.weights.items()}
            for p in range(count)
        )
        return [count_right(self._template, part, partial(call, weights)) for weights in members]


def _fill(rows: Int[Tensor, "_"], size: int) -> Int[Tensor, "_"]:
    """Return the rows, the last one repeated up to this size; it gets the same score again."""
    return torch.cat([rows, rows[-1:].expand(size - len(rows))])
