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
from lmzoo.data.batches import epoch_batches, gather
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.device import beside, device_of
from lmzoo.evaluate import Losses, losses
from lmzoo.fit import Training, epoch_record, loss_of
from lmzoo.fuse.rows import Rows
from lmzoo.fuse.shape import as_function, host_of, shape
from lmzoo.recipe import Accumulate
from lmzoo.record import Record

EVALUATED = 100
"""Sequences per member scored at a time: more would leave the cache."""


def fit_together(
    trainings: Sequence[Training], corpus: Corpus, epochs: int
) -> Iterator[list[Training]]:
    """Train all up to `epochs` epochs each, yielding after each epoch those that went on.

    Each one's new record is its `record`; members may have begun at different epochs.
    """
    while going := [t for t in trainings if t.epoch < epochs and not t.diverged]:
        train_together(going, corpus)
        yield going


def train_together(trainings: Sequence[Training], corpus: Corpus) -> list[Record]:
    """One epoch of each member, and its record; all are of one shape and none has diverged."""
    shapes = {shape(t.model.config, t.recipe) for t in trainings}
    assert len(shapes) == 1, f"members of {len(shapes)} shapes"
    start = time.perf_counter()
    device = device_of(trainings[0].model)
    with beside(trainings[0].model):
        host = host_of(trainings[0].model)
        rows = Rows(trainings, host)
        means = _train(rows, host, corpus.train.to(device))
        rows.write_back()
        seconds = (time.perf_counter() - start) / len(trainings)
        valid = _evaluate(rows, host, corpus.valid.to(device))
    for training, mean, one in zip(trainings, means, valid, strict=True):
        training.epoch += 1
        kept = one if math.isfinite(mean) else None
        training.take(epoch_record(training, mean, kept, seconds, corpus.train.scored))
    return [t.record for t in trainings]


def _train(rows: Rows, host: LanguageModel, data: Sequences) -> list[float]:
    """One pass over the data; each member's mean loss per token while it went."""
    trainings, recipe = rows.trainings, rows.trainings[0].recipe
    objective = vmap(as_function(host.train()))
    clips = torch.tensor([math.inf if t.recipe.clip is None else t.recipe.clip for t in trainings])
    total = torch.zeros(len(trainings), dtype=torch.float64)
    rows.gradients.zero_()
    orders = [
        epoch_batches(data.lengths, recipe.batch, seed=t.seed, epoch=t.epoch) for t in trainings
    ]
    for chosen in zip(*orders, strict=True):
        filled, kept = _of_one_size(chosen)
        batch = gather(data, filled.flatten(), trim=not host.leaks)
        tokens, lengths, *given = (
            column.unflatten(0, filled.shape)
            for column in (batch.tokens, batch.lengths, *batch.given)
        )
        values = rows.values.detach().requires_grad_()
        raised = objective(rows.layout.stacked(values), tokens, lengths, *given)
        if not kept.all():
            raised, lengths = raised.where(kept[..., None], 0.0), lengths.where(kept, 1)
        loss_of(raised, lengths, recipe.loss).sum().backward()
        total += raised.detach().double().sum((1, 2))
        assert values.grad is not None
        _step(rows, values.grad, clips, keep=recipe.accumulate is Accumulate.EPOCH)
    return (-total / data.scored).tolist()


def _of_one_size(
    chosen: Sequence[Int[Tensor, "_"]],
) -> tuple[Int[Tensor, "P B"], Bool[Tensor, "P B"]]:
    """The members' batches side by side: an epoch's one short batch comes at other times.

    It is filled up with its own first sequence, and what is kept says what is no filling.
    """
    most = max(map(len, chosen))
    filled = [torch.cat([one, one[:1].expand(most - len(one))]) for one in chosen]
    sizes = torch.tensor([len(one) for one in chosen])
    return torch.stack(filled), torch.arange(most) < sizes[:, None]


def _step(
    rows: Rows, fresh: Float[Tensor, "P N"], clips: Float[Tensor, "P"], *, keep: bool
) -> None:
    """Clip and move every member; gradients pile up where the recipe says so."""
    gradients = rows.gradients
    if not rows.all_move:
        fresh *= rows.moved
    if keep:
        gradients += fresh
    else:
        gradients.copy_(fresh)
    norms = torch.linalg.vector_norm(gradients, dim=1)
    gradients *= (clips / (norms + 1e-6)).clamp(max=1.0)[:, None]
    for training, group in zip(rows.trainings, rows.optimiser.param_groups, strict=True):
        training.steps += 1
        group["lr"] = training.rate
    rows.optimiser.step()


@torch.no_grad()
def _evaluate(rows: Rows, host: LanguageModel, part: Sequences) -> list[Losses]:
    """Every member's losses on the same sequences."""
    score = vmap(
        as_function(host.eval(), "log_prob"), in_dims=(0, None, None, *[None] * len(part.given))
    )
    stacked = rows.layout.stacked(rows.values)
    nll = torch.empty(len(rows.values), len(part), dtype=torch.float64, device="cpu")
    for chosen in part.lengths.argsort(stable=True).split(EVALUATED):
        some = gather(part, chosen, trim=not host.leaks)
        scores = score(stacked, some.tokens, some.lengths, *some.given)
        nll[:, chosen.cpu()] = -scores.double().sum(2).cpu()
    return [losses(one, part.lengths) for one in nll]
