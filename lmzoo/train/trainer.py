"""The training loop: a generator of epoch records, without logging, files or Ray.

    training = Training(model, recipe, seed)
    for record in fit(training, corpus, epochs=12):
        ...                                  one `epoch` event, see `lmzoo/lab/store/records.py`

Between two epochs `training.dump()` holds the whole state: weights, optimiser state, epoch, and
the best weights so far. The order of the data and the noise of epoch e are functions of (seed, e).
A training that is loaded from a dump therefore continues bit for bit as if it had not been
interrupted (on one machine, with the same number of threads).
"""

import dataclasses
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.seeds import derive_seed
from lmzoo.contract import LanguageModel
from lmzoo.data.batches import epoch_batches, iter_batches
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.kernels.device import CPU, check_precision, device_name, device_of
from lmzoo.kernels.guest import forked_generators, guest
from lmzoo.lab.store.records import Record
from lmzoo.train.closed_form import load_estimate
from lmzoo.train.evaluate import Losses, evaluate
from lmzoo.train.optimisers import make_optimiser, set_rate
from lmzoo.train.pack_layout import HostRow, Layout, Row
from lmzoo.train.recipe import Recipe
from lmzoo.train.step import Step

State = dict[str, Any]
"""Everything that a training depends on, as JSON values and tensors."""


class Training:
    """A model in training: the state that the next epoch depends on."""

    def __init__(self, model: LanguageModel, recipe: Recipe, seed: int):
        """Start a training on the model's device, which must compute in the recipe's precision."""
        check_precision(recipe.precision, device_of(model))
        self.model = model
        self.recipe = recipe
        self.seed = seed
        self.epoch = 0
        self.steps = 0
        self.optimiser = None
        self.step = None
        if not model.closed_form:
            self.optimiser = make_optimiser(recipe, model)
            self.step = Step(model, recipe, self.optimiser)
        self.best_loss = math.inf
        self.best_epoch = 0
        self._best: dict[str, Tensor] | HostRow = {}
        self.trained = 0.0
        """Epochs that are trained; a part of one while it is trained."""
        self.record: Record = {}
        """The record of the last epoch."""
        self.row: Row | None = None
        """What weights and optimiser state are views of after an epoch in a pack."""

    def dump(self) -> State:
        """Return the state as tensors and plain values, for `torch.load(weights_only=True)`.

        If the last epoch is the best one, "weights" and the best weights are the same object, so
        that `torch.save` writes them once. After an epoch in a pack, all tensors are copies.
        """
        return self.snapshot()()

    def snapshot(self) -> Callable[[], State]:
        """Return a function that makes the state of now.

        After an epoch in a pack another thread may call it later: it reads copies.
        """
        # All that the next epoch changes is read now; `make` reads copies only.
        state = self.progress()
        best = self._best
        groups = state.pop("groups")
        loss, epoch = state.pop("best")
        names = list(self.parameters)
        last_is_best = 0 < self.epoch == epoch
        row = None
        if self.row:
            row = dataclasses.replace(self.row)  # the next epoch gives it other matrices

        def make() -> State:
            best_weights = best
            if isinstance(best, HostRow):
                best_weights = best.weights()
            if row is None:
                weights = self.model.state_dict()
                optimiser = None
                if self.optimiser:
                    optimiser = self.optimiser.state_dict()
            else:
                weights = best_weights
                if not last_is_best:
                    weights = row.best().weights()
                optimiser = {
                    "state": row.optimiser_state(),
                    "param_groups": numbered(groups, len(row.names)),
                }
            if last_is_best:
                best_weights = weights
            return state | {
                "weights": weights,
                "optimiser": optimiser,
                "parameters": names,
                "best": {"loss": loss, "epoch": epoch, "weights": best_weights},
            }

        return make

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters by name, in the order in which the optimiser numbers them."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        found = {}
        for group in self._groups:
            for parameter in group["params"]:
                found[names[id(parameter)]] = parameter
        return found

    @property
    def _groups(self) -> list[FieldsDict]:
        if self.optimiser is None:
            return []
        return self.optimiser.param_groups

    def progress(self) -> State:
        """Return the state without its tensors, as plain values: of a group, its size."""
        groups = [group | {"params": len(group["params"])} for group in self._groups]
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "record": self.record,
            "groups": groups,
            "best": (self.best_loss, self.best_epoch),
        }

    @property
    def best_weights(self) -> dict[str, Tensor]:
        """The weights after the best epoch; {} before the first one."""
        if isinstance(self._best, HostRow):
            return self._best.weights()
        return self._best

    def best_values(self, layout: Layout) -> Any:
        """Return the weights after the best epoch as a row of this layout, in the host's memory."""
        best = self._best
        if isinstance(best, HostRow) and best.layout.shapes == layout.shapes:
            return best.values
        weights = {name: value.cpu() for name, value in self.best_weights.items()}
        zeros = torch.zeros(layout.length, device=CPU)
        pieces = layout.pieces(weights, zeros)
        return torch.cat(pieces).numpy()

    def load(self, state: State):
        """Restore the state that `dump` returned."""
        self.leave_pack()
        self.epoch = state["epoch"]
        self.steps = state["steps"]
        self.record = state["record"]
        self.model.load_state_dict(state["weights"])
        if self.optimiser:
            self.optimiser.load_state_dict(self._regrouped(state))
        best = state["best"]
        self.best_loss = best["loss"]
        self.best_epoch = best["epoch"]
        self._best = copies(best["weights"])

    def _regrouped(self, state: State) -> State:
        """Return the optimiser's state of `dump`, in the groups that this recipe asks for.

        Another weight decay than that of the dump gives other groups, which number the parameters
        in another order.
        """
        assert self.optimiser is not None
        own = self.optimiser.state_dict()["param_groups"]
        names = list(self.parameters)
        saved = state["optimiser"]["state"]
        before = state.get("parameters", names)  # missing in earlier versions
        numbers = {name: number for number, name in enumerate(names)}
        moved = {numbers[name]: saved[i] for i, name in enumerate(before) if i in saved}
        return {"state": moved, "param_groups": own}

    def add_record(self, record: Record):
        """Store the record of the epoch just trained, and its weights if they are the best."""
        self.record = record
        # A diverged epoch has no loss: the weights before it stay the best.
        loss = record["valid_token"]
        if loss is not None and loss < self.best_loss:
            self.best_loss = loss
            self.best_epoch = self.epoch
            if self.row:
                # A row of a pack is copied by the pack itself, all members at once.
                self._best = self.row.best()
            else:
                self._best = copies(self.model.state_dict())

    def leave_pack(self):
        """Give weights and optimiser state memory of their own again."""
        if self.row is None:
            return
        self.row = None
        assert self.optimiser is not None
        for weight in self.model.parameters():
            weight.data = weight.data.clone()
            # Tensors of a pack are views of rows, whose memory other members share.
            state = self.optimiser.state.get(weight, {})
            state.update(copies(state))

    def epoch_rates(self, steps: int) -> list[float]:
        """Return the learning rate of each of the `steps` steps of the next epoch."""
        coming = range(self.steps + 1, self.steps + steps + 1)
        return [self.recipe.learning_rate(step, steps) for step in coming]

    @property
    def diverged(self) -> bool:
        """Whether the loss of the last epoch was NaN or infinite."""
        if not self.record:
            return False
        return self.record["valid_token"] is None


Trainings = Sequence[Training]


def copies(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy of each tensor."""
    return {name: value.clone() for name, value in weights.items()}


def numbered(groups: Sequence[Fields], count: int) -> list[FieldsDict]:
    """Return groups of `progress` with the numbers of their parameters, as torch writes them.

    Groups of earlier versions have no sizes: there is one, of all `count` parameters.
    """
    found = []
    begin = 0
    for group in groups:
        end = begin + group.get("params", count)
        own = {"params": list(range(begin, end))}
        found.append(dict(group) | own)
        begin = end
    return found


def fit(training: Training, corpus: Corpus, epochs: int) -> Iterator[Record]:
    """Train until `epochs` epochs are done in total, and yield the record of each epoch.

    Training stops after an epoch whose loss is NaN or infinite; the losses of its record are None.
    A `UserError` says that the schedule of the learning rate ends before, or that the corpus scores
    some tokens only and the model gives no distribution of the next token.
    """
    training.recipe.with_budget(epochs)
    if corpus.valid.scored is not None:
        training.model.require_next_token()
    while training.epoch < epochs and not training.diverged:
        # Not between two epochs: then the process is the caller's.
        with guest(training.model, training.recipe.precision):
            record = _next_record(training, corpus, epochs)
        yield record


def _next_record(training: Training, corpus: Corpus, epochs: int) -> Record:
    """Train for one epoch, or fit a model in closed form, and return its record."""
    if training.model.closed_form:
        estimate = load_estimate(training.model, corpus)
        train = estimate.train
        valid = estimate.valid
        seconds = estimate.seconds
        # One record: a closed form has nothing to improve in further epochs.
        training.epoch = epochs
        tokens = corpus.train.num_scored
    else:
        start = time.perf_counter()
        train, tokens = _train_epoch(training, corpus.train)
        training.epoch += 1
        seconds = time.perf_counter() - start
        valid = None
        if math.isfinite(train):
            valid = evaluate(training.model, corpus.valid)
    record = epoch_record(training, train, valid, seconds, tokens)
    training.add_record(record)
    return record


def _train_epoch(training: Training, data: Sequences) -> tuple[float, int]:
    """Train for one epoch: (mean negative objective per token over its steps, number of tokens)."""
    model = training.model
    recipe = training.recipe
    step = training.step
    assert step is not None
    # A training that continues alone owns its memory.
    training.leave_pack()
    model.train()
    step.begin_epoch()
    data = data.for_epoch(training.epoch)
    few = step.stepper.few_shapes
    order = epoch_batches(data.lengths, recipe.batch, seed=training.seed, epoch=training.epoch)
    # A model that leaks reads its padding: every batch then has the full length.
    batches = iter_batches(data, order, device_of(model), trim=not model.leaks, few_widths=few)
    rates = training.epoch_rates(len(order))

    def columns() -> Iterator[tuple[Tensor | None, ...]]:
        for place, batch in enumerate(batches):
            training.trained = training.epoch + place / len(order)
            yield (batch.scored,) + batch.inputs

    # A seed of its own for each epoch: a training that is continued draws the same noise.
    with forked_generators(device_of(model)) as set_seed:
        set_seed(derive_seed(training.seed, "noise", training.epoch))
        step.stepper.run_epoch(step, rates, columns())
    training.steps += len(order)
    # The optimiser of a checkpoint has the last rate, as if its steps had set it.
    set_rate(step.optimiser, rates[-1])
    return float(-step.total / data.num_scored), data.num_scored


def epoch_record(
    training: Training, train: float, valid: Losses | None, seconds: float, tokens: int
) -> Record:
    """Return the `epoch` event of the last epoch; losses that are not finite become None.

    `train` is in nats per token; `tokens` were scored in `seconds` of training.
    """
    record: Record = {
        "event": "epoch",
        "epoch": training.epoch,
        "train_token": None,
        "valid_token": None,
        "valid_sentence": None,
    }
    # JSON has no NaN: a loss that is not finite stays None.
    if math.isfinite(train):
        record["train_token"] = train
    if valid is not None and math.isfinite(valid.token):
        record["valid_token"] = valid.token
        record["valid_sentence"] = valid.sentence
        for name, share in valid.accuracies.items():
            record[f"valid_{name}"] = share
    return record | {
        "seconds": round(seconds, 4),
        "tokens_per_second": round(tokens / seconds),
        "host": socket.gethostname(),
        "device": device_name(device_of(training.model)),
    }
