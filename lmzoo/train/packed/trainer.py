"""An epoch for P members as one program, and the same checkpoint for each as alone.

    L_p = loss of member p on its own batch        Σ_p L_p is differentiated once
    g_p = ∂L_p / ∂θ_p                              as no other L depends on θ_p

Each member sees its own order of the data, a function of its (seed, epoch) alone; a
batch is as wide as the longest of the members' sequences, and padding changes nothing.
What one member's numbers do, a NaN too, no other member's rows can see.

Horizontal fusion: Wang et al. 2021 (arXiv:2102.02344).
"""

import math
import time
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import vmap

from lmzoo.contract import LanguageModel
from lmzoo.data.batches import epoch_batches, gather_batch, iter_batches
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.device import device_of, device_scope
from lmzoo.store.records import Record
from lmzoo.train.capture.stepper import Stepper
from lmzoo.train.evaluate import Losses, losses
from lmzoo.train.packed.allocator import keep_freed
from lmzoo.train.packed.recorder import OperationRecorder
from lmzoo.train.packed.shapes import as_function, host_of, shape
from lmzoo.train.packed.stacked import StackedParameters
from lmzoo.train.recipe import Accumulate
from lmzoo.train.trainer import Training, epoch_record, loss_of

EVALUATED = 2000
"""Sequences of all members scored at a time: many more would leave the cache."""
LEAST = 100
"""Sequences of each member at a time, however many members there are."""


def fit_packed(
    trainings: Sequence[Training], corpus: Corpus, epochs: int
) -> Iterator[list[Training]]:
    """Train all up to `epochs` epochs each, yielding after each epoch those that went on.

    Each one's new record is its `record`; members may have begun at different epochs.
    """
    while going := [t for t in trainings if t.epoch < epochs and not t.diverged]:
        train_packed_epoch(going, corpus)
        yield going


def train_packed_epoch(trainings: Sequence[Training], corpus: Corpus) -> list[Record]:
    """One epoch of each member, and its record; all are of one shape and none has diverged."""
    shapes = {shape(t.model.config, t.recipe) for t in trainings}
    assert len(shapes) == 1, f"members of {len(shapes)} shapes"
    keep_freed()
    start = time.perf_counter()
    with device_scope(trainings[0].model):
        company = PackedTrainer.of(trainings)
        means = company.train(corpus.train)
        company.rows.write_back()
        seconds = (time.perf_counter() - start) / len(trainings)
        valid = _evaluate(company.rows, company.host, corpus.valid.to(company.device))
    for training, mean, one in zip(trainings, means, valid, strict=True):
        training.epoch += 1
        kept = one if math.isfinite(mean) else None
        training.take(epoch_record(training, mean, kept, seconds, corpus.train.scored))
    return [t.record for t in trainings]


class PackedTrainer:
    """Members that are trained as one program, and the step that moves them all."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        self.device = device_of(trainings[0].model)
        self.host = host_of(trainings[0].model)
        self.rows = StackedParameters(trainings, self.host)
        self.recipe = trainings[0].recipe
        self.total = torch.zeros(len(trainings), dtype=torch.float64)
        self._clips = torch.tensor([t.recipe.clip or math.inf for t in trainings])
        self._objective = vmap(as_function(self.host))
        what = f"{len(trainings)} members of {self.host.name}"
        compiled = self.rows.adam is not None and self.recipe.accumulate is Accumulate.STEP
        tapes = OperationRecorder() if compiled else None
        self.stepper = Stepper(self.rows.optimiser, self.device, what, otherwise=tapes)

    @staticmethod
    def of(trainings: Sequence[Training]) -> "Company":
        """The company that they were in before, where steps are replayed; else a new one."""
        known = trainings[0].packed_trainer
        if isinstance(known, PackedTrainer) and known.rows.belong_to(trainings):
            known.rows.read()
            return known
        found = PackedTrainer(list(trainings))
        for training in trainings:
            training.packed_trainer = None  # one that they were in before holds its memory
        if found.stepper.replays:
            trainings[0].packed_trainer = found
        return found

    def train(self, data: Sequences) -> list[float]:
        """One pass over the data; each member's mean loss per token while it went."""
        self.host.train()
        self.total.zero_()
        self.rows.gradients.zero_()
        trainings = self.rows.trainings
        orders = [
            epoch_batches(data.lengths, self.recipe.batch, seed=t.seed, epoch=t.epoch)
            for t in trainings
        ]
        sides = [_of_one_size(chosen) for chosen in zip(*orders, strict=True)]
        rates = [[t.rate_at(t.steps + i + 1) for t in trainings] for i in range(len(sides))]
        self.stepper.epoch(self.step, rates, self._batches(data, sides))
        for training, group, rate in zip(
            trainings, self.rows.optimiser.param_groups, rates[-1], strict=True
        ):
            training.steps += len(sides)
            group["lr"] = rate
        return (-self.total / data.scored).tolist()

    def _batches(
        self, data: Sequences, sides: Sequence[tuple[Tensor, Tensor | None]]
    ) -> Iterator[tuple[Tensor | None, ...]]:
        trim, multiple = not self.host.leaks, self.stepper.multiple
        kept = [None if one is None else one.to(self.device) for _, one in sides]
        order = [filled.flatten() for filled, _ in sides]
        batches = iter_batches(data, order, self.device, trim=trim, multiple=multiple)
        for batch, (filled, _), one in zip(batches, sides, kept, strict=True):
            columns = (batch.tokens, batch.lengths, *batch.given)
            yield one, *(column.unflatten(0, filled.shape) for column in columns)

    def step(
        self,
        rates: Sequence[float] | Float[Tensor, "P"],
        kept: Bool[Tensor, "P B"] | None,
        tokens: Int[Tensor, "P B T"],
        lengths: Int[Tensor, "P B"],
        *given: Tensor,
    ) -> None:
        """Move every member, each by its own batch; what is not `kept` fills a batch up."""
        with device_scope(self.host):
            raised = self._objective(self.rows.weights, tokens, lengths, *given)
        if kept is not None:
            raised, lengths = raised.where(kept[..., None], 0.0), lengths.where(kept, 1)
        self.rows.differentiate(
            loss_of(raised, lengths, self.recipe.loss).sum(),
            pile=self.recipe.accumulate is Accumulate.EPOCH,
        )
        self.total += raised.detach().double().sum((1, 2))
        self._move(rates)

    def _move(self, rates: Sequence[float] | Float[Tensor, "P"]) -> None:
        """Clip and move every member."""
        rows = self.rows
        if rows.adam is not None and self.recipe.accumulate is Accumulate.STEP:
            rows.adam.step(rates, self._clips, rows.gradients)
            return
        norms = torch.linalg.vector_norm(rows.gradients, dim=1)
        rows.gradients *= (self._clips / (norms + 1e-6)).clamp(max=1.0)[:, None]
        for rate, group in zip(rates, rows.optimiser.param_groups, strict=True):
            group["lr"] = rate
        rows.optimiser.step()


def _of_one_size(
    chosen: Sequence[Int[Tensor, "_"]],
) -> tuple[Int[Tensor, "P B"], Bool[Tensor, "P B"] | None]:
    """The members' batches side by side: at other epochs the one short batch comes at other times.

    It is filled up with its own first sequence, and what is kept says what is no filling;
    None where there is none.
    """
    sizes = [len(one) for one in chosen]
    if min(sizes) == max(sizes):
        return torch.stack(list(chosen)), None
    filled = [torch.cat([one, one[:1].expand(max(sizes) - len(one))]) for one in chosen]
    ends = torch.tensor(sizes, device="cpu")[:, None]
    return torch.stack(filled), torch.arange(max(sizes), device="cpu") < ends


@torch.no_grad()
def _evaluate(rows: StackedParameters, host: LanguageModel, part: Sequences) -> list[Losses]:
    """Every member's losses on the same sequences."""
    score = vmap(
        as_function(host.eval(), "log_prob"), in_dims=(0, None, None, *[None] * len(part.given))
    )
    nll = torch.empty(len(rows.values), len(part), dtype=torch.float64, device="cpu")
    each = max(LEAST, EVALUATED // len(nll))
    for chosen in part.lengths.argsort(stable=True).split(each):
        some = gather_batch(part, chosen, trim=not host.leaks)
        scores = score(rows.weights, some.tokens, some.lengths, *some.given)
        nll[:, chosen.cpu()] = -scores.double().sum(2).cpu()
    return [losses(one, part.lengths) for one in nll]
