"""Train and evaluate P pack members as one program; each gets the checkpoint of a run alone.

The two checkpoints agree up to rounding, because a pack adds numbers in another order.

    L_p = loss of member p on its own batch        Σ_p L_p is differentiated once
    g_p = ∂L_p / ∂θ_p                              because no other L depends on θ_p

Each member has its own order of the data, a function of its (seed, epoch) alone. A batch is as
wide as the longest sequence of any member; padding does not change results. The numbers of one
member, a NaN included, never reach the rows of another.

Horizontal fusion: Wang et al. 2021 (arXiv:2102.02344).
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.func import vmap

from lmzoo.contract import LanguageModel
from lmzoo.data.batches import iter_batches, pack_batches
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.kernels.device import device_of, device_scope
from lmzoo.train.evaluate import Losses, compute_losses, count_right
from lmzoo.train.pack_compatibility import make_functional, template_model
from lmzoo.train.pack_parameters import Rates, StackedParameters, clip_factors
from lmzoo.train.pack_recorder import OperationRecorder
from lmzoo.train.recipe import Accumulate
from lmzoo.train.step import compute_loss, restrict
from lmzoo.train.stepper import Stepper
from lmzoo.train.trainer import Trainings
from lmzoo.types import Lengths, Mask, Tokens

EVALUATION_BATCH = 2000
"""Sequences of all members evaluated at a time; many more would exceed the cache."""
MIN_EVALUATION_BATCH = 100
"""Minimum number of sequences per member evaluated at a time."""


class PackedEvaluation:
    """The step that scores one batch of sequences for all members."""

    def __init__(self, stacked: StackedParameters, template: LanguageModel, device: torch.device):
        self._stacked = stacked
        self._template = template
        self._device = device
        self._score = make_functional(template, "log_prob")
        self._nll = torch.empty(0, device=device)
        self._stepper = self._new_stepper()

    def losses(self, part: Sequences, room: int) -> list[Losses]:
        """Return the losses of every member; `room` is the size of the largest part to come."""
        self._template.eval()
        count = len(self._stacked.trainings)
        if self._nll.shape[-1] < room:
            shape = (len(self._stacked.values), room)
            self._nll = torch.empty(shape, dtype=torch.float64, device=self._device)
            self._stepper = self._new_stepper()  # a recorded step writes to the previous memory
        # Recordings of few shapes need batches of one size.
        few = self._stepper.few_shapes
        size = max(MIN_EVALUATION_BATCH, EVALUATION_BATCH // len(self._nll))
        by_length = part.lengths.cpu().argsort(stable=True)
        order = list(by_length.split(size))
        if few:
            last = order.pop()
            # The last sequence is repeated up to this size; it gets the same score again.
            missing = last[-1:].expand(size - len(last))
            order.append(torch.cat([last, missing]))
        trim = not self._template.leaks
        batches = iter_batches(part, order, self._device, trim=trim, few_widths=few)
        for rows, batch in zip(order, batches, strict=True):
            columns = (rows.to(self._device), batch.scored)
            self._stepper.run_step(self._step, columns + batch.inputs)
        scored = self._nll[:count, : len(part)]
        nll = scored.to("cpu", copy=True)  # the next part overwrites it
        counts = part.counts.cpu()
        return [
            compute_losses(own, counts, hits)
            for own, hits in zip(nll, self._count_right(part, count), strict=True)
        ]

    @torch.no_grad()
    def _step(
        self,
        rows: Int[Tensor, "B"],
        scored: Mask | None,
        tokens: Tokens,
        lengths: Lengths,
        *sources: Tensor,
    ):
        # All members read the same batch: only the weights have an axis of members.
        batch = (tokens, lengths) + sources
        shared = (None,) * len(batch)
        score = vmap(self._score, in_dims=(0,) + shared)
        with device_scope(self._template):
            scores = score(self._stacked.weights, *batch)
        if scored is not None:
            scores = scores.where(scored, 0.0)
        log_probs = scores.double().sum(2)
        self._nll[:, rows] = -log_probs

    def _new_stepper(self) -> Stepper:
        return Stepper(None, self._device, f"the evaluation of {self._template.name}")

    @torch.no_grad()
    def _count_right(self, part: Sequences, count: int) -> list[Tensor | None]:
        """Return `count_right` of every member, one by one; None unless the part is a task."""
        if not part.is_task:
            return [None] * count
        call = make_functional(self._template, "most_probable")
        found = []
        for p in range(count):
            weights = {name: weight[p] for name, weight in self._stacked.weights.items()}
            most_probable = partial(call, weights)
            found.append(count_right(self._template, part, most_probable))
        return found


class _Batches(NamedTuple):
    """The batches of an epoch of members (seed, epoch)."""

    data: Sequences
    members: Sequence[tuple[int, int]]
    steps: int
    columns: Iterator[tuple[Tensor | None, ...]]


class PackedTrainer:
    """The stacked parameters of a pack, and the step that trains all its members."""

    def __init__(self, trainings: Trainings, rows: int | None = None):
        """With `rows`, the trainer can get other members, at most so many (`replace`)."""
        self.device = device_of(trainings[0].model)
        self.template = template_model(trainings[0].model)
        self.stacked = StackedParameters(trainings, self.template, rows)
        self.recipe = trainings[0].recipe
        count = len(self.stacked.values)
        # In double, as a training alone sums: many batches of float32 would lose digits.
        self.total = torch.zeros(count, dtype=torch.float64)
        """The objective of each row, summed over all tokens of the epoch so far."""
        self._clips = torch.zeros(count)
        self._set_clips()
        self._objective = vmap(make_functional(self.template))
        self._accumulates = self.recipe.accumulate is Accumulate.EPOCH
        name = f"{count} members of {self.template.name}"
        recorder = OperationRecorder()
        self.stepper = Stepper(None, self.device, name, fallback=recorder)
        self._ahead: _Batches | None = None
        """Batches that were made for the members' next epoch."""
        self._evaluation = PackedEvaluation(self.stacked, self.template, self.device)

    def replace(self, trainings: Trainings):
        """Give the rows to other members; what the steps have recorded serves them, too."""
        self.stacked.replace(trainings)
        self._set_clips()

    def train_epoch(self, data: Sequences) -> list[float]:
        """Train for one epoch; return each member's mean negative objective per token.

        A GPU computes while the host continues, so the batches of the next epoch are made then.
        """
        self.template.train()
        self.total.zero_()
        self.stacked.gradients.zero_()
        trainings = self.stacked.trainings
        all_rows = self.stacked.row_trainings
        members = [(t.seed, t.epoch) for t in all_rows]
        batches = self._ahead
        self._ahead = None
        # Batches were made for this epoch only if the members and the data are the same.
        if batches is None or batches.data is not data or batches.members != members:
            batches = self._batches(data, members)
        by_row = [t.epoch_rates(batches.steps) for t in all_rows]
        rates = list(zip(*by_row, strict=True))  # of each step, one rate per row
        self.stepper.run_epoch(self.step, rates, batches.columns)
        if self.stepper.few_shapes:
            # The GPU is still busy: batches of the next epoch are made meanwhile.
            following = [(seed, epoch + 1) for seed, epoch in members]
            self._ahead = self._batches(data, following)
        self.stacked.rates = rates[-1]
        self._steps = batches.steps
        means = -self.total / data.num_scored
        return means[: len(trainings)].tolist()

    def evaluate(self, part: Sequences, corpus: Corpus) -> list[Losses]:
        """Return the losses of every member on a split of the corpus for evaluation."""
        room = max(len(corpus.valid), len(corpus.test))
        own_part = part.to(self.device)
        return self._evaluation.losses(own_part, room)

    def _set_clips(self):
        # An infinite limit, not a branch: members of one pack may differ in it.
        clips = [t.recipe.clip or math.inf for t in self.stacked.row_trainings]
        self._clips.copy_(torch.tensor(clips))

    def write_back(self):
        """Copy the state after the epoch to the trainings."""
        self.stacked.write_back()
        for training in self.stacked.trainings:
            training.steps += self._steps

    def _batches(self, data: Sequences, members: Sequence[tuple[int, int]]) -> _Batches:
        few = self.stepper.few_shapes
        part, batches = pack_batches(data, self.recipe.batch, members, full=few)
        order = []
        masks = []
        for rows, mask in batches:
            # The batches of all members as one batch, which is unflattened below.
            order.append(rows.flatten())
            if mask is not None:
                mask = mask.to(self.device)
            masks.append(mask)
        trim = not self.template.leaks
        gathered = iter_batches(part, order, self.device, trim=trim, few_widths=few)

        def columns() -> Iterator[tuple[Tensor | None, ...]]:
            for batch, (rows, _), mask in zip(gathered, batches, masks, strict=True):
                found = [mask]
                for column in (batch.scored,) + batch.inputs:
                    if column is not None:
                        column = column.unflatten(0, rows.shape)
                    found.append(column)
                yield tuple(found)

        return _Batches(data, members, len(batches), columns())

    def step(
        self,
        rates: Rates,
        mask: Bool[Tensor, "P B"] | None,
        scored: Bool[Tensor, "P B T"] | None,
        tokens: Int[Tensor, "P B T"],
        lengths: Int[Tensor, "P B"],
        *sources: Tensor,
    ):
        """Train each member on its own batch; sequences where `mask` is False do not count."""
        with device_scope(self.template):
            objective = self._objective(self.stacked.weights, tokens, lengths, *sources)
            if mask is not None:
                # A row that the mask hides is no sequence of this member: it counts nothing.
                objective = objective.where(mask[..., None], 0.0)
                lengths = lengths.where(mask, 1)  # no scored token
                if scored is not None:
                    scored = scored & mask[..., None]
            objective, counts = restrict(objective, lengths, scored)
            losses = compute_loss(objective, counts, self.recipe.loss)
            self.stacked.differentiate(losses, accumulate=self._accumulates)
            values = objective.detach()
            self.total += values.sum((1, 2), dtype=torch.float64)
            self._update(rates)

    def _update(self, rates: Rates):
        stacked = self.stacked
        most = self.recipe.clip_value
        if most is not None:
            stacked.gradients.clamp_(-most, most)
        if not self._accumulates:
            stacked.optimiser.step(rates, self._clips, stacked.gradients)
            return
        # Gradients are clipped before further ones are added.
        stacked.gradients *= clip_factors(stacked.gradients, self._clips)
        no_clips = torch.full_like(self._clips, math.inf)
        stacked.optimiser.step(rates, no_clips, stacked.gradients)
