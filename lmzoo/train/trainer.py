"""Training as a stream of records: a generator, no logger, no files, no Ray.

    state = Training(model, recipe, seed)
    for record in fit(state, corpus, epochs=12):
        ...                                  one `epoch` event, see `lmzoo/store/records.py`

Between two epochs the whole state of a training is `state.dump()`: weights, optimiser,
position, the best weights so far. The order of the data and the noise of epoch e are
functions of (seed, e), so a training loaded from a dump goes on bit for bit as if it
had never stopped (on one machine, with the same number of threads).
"""

import math
import socket
import time
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.contract import LanguageModel, stream
from lmzoo.data.batches import epoch_batches, iter_batches
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.device import device_of, device_scope
from lmzoo.store.records import Record
from lmzoo.train.capture.stepper import Stepper
from lmzoo.train.evaluate import Losses, evaluate
from lmzoo.train.optimisers import make_optimiser
from lmzoo.train.recipe import Accumulate, Recipe, Weighting


class Training:
    """A model on its way: everything that the next epoch depends on."""

    def __init__(self, model: LanguageModel, recipe: Recipe, seed: int) -> None:
        self.model, self.recipe, self.seed = model, recipe, seed
        self.epoch = 0
        self.steps = 0
        self.optimiser = None if model.closed_form else make_optimiser(recipe, model.parameters())
        self.step = Step(model, recipe, self.optimiser) if self.optimiser else None
        self.packed_trainer: Any = None
        """What last trained it together with others (`lmzoo/fuse`), where that is replayed."""
        self.best_loss, self.best_epoch = math.inf, 0
        self.best_weights: dict[str, Tensor] = {}
        self.record: Record = {}
        """The last epoch's record."""

    def dump(self) -> dict[str, Any]:
        """The state as tensors and plain values, safe for `torch.load(weights_only=True)`.

        The best weights, where they are those of this epoch, are the same object: written once.
        """
        weights = self.model.state_dict()
        newest = 0 < self.epoch == self.best_epoch
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "weights": weights,
            "optimiser": self.optimiser.state_dict() if self.optimiser else None,
            "best": {
                "loss": self.best_loss,
                "epoch": self.best_epoch,
                "weights": weights if newest else self.best_weights,
            },
            "record": self.record,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a dump."""
        self.epoch, self.steps, self.record = state["epoch"], state["steps"], state["record"]
        self.model.load_state_dict(state["weights"])
        if self.optimiser:
            self.optimiser.load_state_dict(state["optimiser"])
        best = state["best"]
        self.best_loss, self.best_epoch = best["loss"], best["epoch"]
        self.best_weights = {name: value.clone() for name, value in best["weights"].items()}

    def take(self, record: Record) -> None:
        """Take in the record of an epoch that has just been trained."""
        self.record = record
        if record["valid_token"] is not None:
            self.keep_best(record["valid_token"])

    def keep_best(self, loss: float) -> None:
        """Remember the weights if no earlier epoch had so low a validation loss."""
        if loss < self.best_loss:
            self.best_loss, self.best_epoch = loss, self.epoch
            weights = self.model.state_dict()
            self.best_weights = {name: value.clone() for name, value in weights.items()}

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, the first being 1."""
        warmup = self.recipe.warmup
        return self.recipe.lr * min(1.0, step / warmup) if warmup else self.recipe.lr

    @property
    def diverged(self) -> bool:
        """Whether the last epoch ended in a NaN or an infinity."""
        return bool(self.record) and self.record["valid_token"] is None


def fit(state: Training, corpus: Corpus, epochs: int) -> Iterator[Record]:
    """Train up to `epochs` epochs in all, yielding each epoch's record when it is done.

    A loss that turns NaN or infinite ends the stream: its record has null losses.
    """
    while state.epoch < epochs and not state.diverged:
        start = time.perf_counter()
        if state.model.closed_form:
            part = corpus.train.to(device_of(state.model))
            state.model.fit_closed_form(part.tokens, part.lengths)
            train = evaluate(state.model, corpus.train).token
            state.epoch = epochs
        else:
            train = _epoch(state, corpus.train)
            state.epoch += 1
        seconds = time.perf_counter() - start
        valid = evaluate(state.model, corpus.valid) if math.isfinite(train) else None
        state.take(epoch_record(state, train, valid, seconds, corpus.train.scored))
        yield state.record


def _epoch(state: Training, data: Sequences) -> float:
    """One pass over the data; the mean loss per token while it went, of what is trained."""
    model, recipe, step = state.model, state.recipe, state.step
    assert step is not None
    model.train()
    step.begin()
    order = epoch_batches(data.lengths, recipe.batch, seed=state.seed, epoch=state.epoch)
    batches = iter_batches(
        data, order, device_of(model), trim=not model.leaks, multiple=step.stepper.multiple
    )
    rates = [state.rate_at(state.steps + i + 1) for i in range(len(order))]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(state.seed, "noise", state.epoch))
        step.stepper.epoch(step, rates, ((one.tokens, one.lengths, *one.given) for one in batches))
    state.steps += len(order)
    for group in step.optimiser.param_groups:
        group["lr"] = rates[-1]
    return float(-step.total / data.scored)


class Step:
    """What is done for a batch: forward, loss, backward, clip, optimiser."""

    def __init__(
        self, model: LanguageModel, recipe: Recipe, optimiser: torch.optim.Optimizer
    ) -> None:
        self.model, self.recipe, self.optimiser = model, recipe, optimiser
        device = device_of(model)
        self.total = torch.zeros((), dtype=torch.float64, device=device)
        """What is raised, summed over the epoch."""
        self._piles = recipe.accumulate is Accumulate.EPOCH
        self.stepper = Stepper(optimiser, device, model.name, piling=self._piles)

    def begin(self) -> None:
        """An epoch begins."""
        self.total.zero_()
        # What piles up while steps are replayed does so in one place.
        self.optimiser.zero_grad(set_to_none=not (self._piles and self.stepper.replays))

    def __call__(
        self, rate: float | Tensor, tokens: Tensor, lengths: Tensor, *given: Tensor
    ) -> None:
        """One step at this learning rate."""
        if not self._piles:
            self.optimiser.zero_grad()
        with device_scope(self.model):
            raised = self.model.objective(tokens, lengths, *given)
            loss_of(raised, lengths, self.recipe.loss).backward()
        self.total += raised.detach().double().sum()
        if self.recipe.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()


def loss_of(
    raised: Float[Tensor, "*P B T"], lengths: Int[Tensor, "*P B"], weighting: Weighting
) -> Float[Tensor, "*P"]:
    """What a step descends, of one batch or of each member's; a sequence of length 1 is none."""
    nll, n = -raised.sum(-1), lengths - 1
    if weighting is Weighting.TOKEN:
        return nll.sum(-1) / n.sum(-1)
    return (nll / n.clamp(min=1)).sum(-1) / (n > 0).sum(-1)


def epoch_record(
    state: Training, train: float, valid: Losses | None, seconds: float, tokens: int
) -> Record:
    """What is written down of an epoch; losses that are not finite are null."""
    if valid is not None and not math.isfinite(valid.token):
        valid = None
    return {
        "event": "epoch",
        "epoch": state.epoch,
        "train_token": train if math.isfinite(train) else None,
        "valid_token": valid.token if valid else None,
        "valid_sentence": valid.sentence if valid else None,
        "seconds": round(seconds, 4),
        "tokens_per_second": round(tokens / seconds),
        "host": socket.gethostname(),
    }
