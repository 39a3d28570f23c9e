"""The test loss of trained models without a part: cut, at its mean, of another sequence, repaired.

    zero     the part is cut; the other weights are those that were trained
    mean     the part has its mean over the training split
    other    the part is as it was on another test sequence of the same length
    trained  the part is cut, and the model is trained for k more steps

`mean` and `other` need an activation: what the weights of the part compute, or what a submodule
returns. A part of a config has one if the model with this activation at zero equals the model that
is cut, which is tried on a batch. The k steps run the whole schedule of the run's recipe, without a
warm-up, and start a new optimiser. The whole model is trained for as many steps, too: its loss is
what `trained` is compared with.

Models of several seeds are measured as one pack. A sequence whose length no other one has keeps
its own activations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.functional.copied import copied
from lmzoo.inspect.interventions import Means, Part, Recorded, See, at_mean, at_other, at_zero, seen
from lmzoo.inspect.module_cuts import ZERO, apply_cut, cuts
from lmzoo.kernels.device import device_of
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.kernels.guest import evaluating, guest
from lmzoo.train.cut_weights import Inherited, Variant, inherited
from lmzoo.train.evaluate import evaluate
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.optimisers import build_model
from lmzoo.train.pack_compatibility import pack_key, packing_pays, reason_not_packable
from lmzoo.train.recipe import TO_AN_END, Recipe
from lmzoo.train.trainer import Training, Trainings, fit

ZEROED = "zero"
MEAN = "mean"
OTHER = "other"
TRAINED = "trained"
WAYS = (ZEROED, MEAN, OTHER, TRAINED)
NO_ACTIVATION = "no activation: it is not what weights of its own or a submodule compute"
BATCH = 500
TOLERANCE = 1e-4
"""Nats by which two ways to compute one function may differ on a sequence."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained model."""

    run: str
    model: LanguageModel
    recipe: Recipe
    seed: int
    epoch: int
    """The epoch whose weights it has."""
    means: dict[str, Means] = field(default_factory=dict)
    """The means of its products, and of the outputs of a submodule, when they are known."""


NO_PART = Part()


@dataclass(frozen=True)
class Cut:
    """A cut of the models of a point, and the part that it removes."""

    label: str
    config: Any = None
    """The config of the cut model; None: the cut is one of `module_cuts.py`."""
    left: Inherited | None = None
    """The weights that the trained model leaves to that of the config."""
    part: Part = NO_PART
    missing: Mapping[str, str] = field(default_factory=dict)
    """Way -> why it has no meaning."""

    def applied(self, subject: Subject) -> LanguageModel:
        """Return a copy of a trained model without the part."""
        if self.left is None:
            model: Any = copied(subject.model)
            if self is not WHOLE:
                apply_cut(model, self.label)
            return model
        task = subject.model.task
        model = build_model(self.config, task, subject.seed, subject.recipe)
        model.to(device_of(subject.model))
        # By place in each tensor: weights that only the whole has are left out.
        self.left.load(model, subject.model.state_dict())
        return model


WHOLE = Cut("nothing")


def config_cut(variant: Variant, subject: Subject, corpus: Corpus) -> Cut:
    """Return a cut of a config; a `UserError` says that the model cannot be built."""
    task = corpus.task
    recipe = subject.recipe
    whole = build_model(subject.model.config, task, 0, recipe)
    without = build_model(variant.config, task, 0, recipe)
    left = inherited(whole, without)
    cut = Cut(variant.label, variant.config, left)
    if left.own:
        reason = f"the cut has weights of its own: {', '.join(left.own)}"
        missing = dict.fromkeys((ZEROED, MEAN, OTHER), reason)
        return replace(cut, missing=missing)
    part = Part(left.removed)
    return _with_part(cut, part, subject, corpus)


def module_cuts(subject: Subject, corpus: Corpus) -> list[Cut]:
    """Return the cuts of a model without named ones: parameters and submodules."""
    # Eight sequences are enough to find the modules: their outputs have shapes, not meanings.
    rows = next(_equal_lengths(corpus.test))
    batch = gather_batch(corpus.test, rows[:8])
    weights = dict(subject.model.named_parameters())
    found = []
    for known in cuts(subject.model, *batch.inputs):
        kind, _, path = known.name.partition(" ")
        part = NO_PART
        if kind == ZERO:
            part = Part(module=path)
        elif path in weights:
            everything = torch.ones_like(weights[path], dtype=torch.bool)
            part = Part({path: everything})
        cut = Cut(known.name)
        found.append(_with_part(cut, part, subject, corpus))
    return found


def _with_part(cut: Cut, part: Part, subject: Subject, corpus: Corpus) -> Cut:
    """Return a cut with its part, if it is an activation; else with the reason."""
    without = cut.applied(subject)
    if _is_cut(subject.model, without, part, corpus.test):
        return replace(cut, part=part)
    missing = dict.fromkeys((MEAN, OTHER), NO_ACTIVATION)
    return replace(cut, missing=missing)


@torch.no_grad()
def _is_cut(whole: LanguageModel, cut: LanguageModel, part: Part, data: Sequences) -> bool:
    """Return whether a model equals a cut one if the activations of a part are zero."""
    # Batches of one length have no padding, whose activations would count in a mean.
    rows = next(_equal_lengths(data))
    batch = gather_batch(data, rows[:4])
    whole.eval()
    cut.eval()
    # Kernels compute whole recurrences: their activations cannot be replaced.
    with without_kernels():
        with seen(whole, at_zero(part), part.module):
            at_zero_scores = whole.log_prob(*batch.inputs)
        cut_scores = cut.log_prob(*batch.inputs)
    return at_zero_scores.allclose(cut_scores, rtol=0, atol=TOLERANCE)


def losses(
    cut: Cut, way: str, subjects: Sequence[Subject], corpus: Corpus, extra: Sequences
) -> list[float | None]:
    """Return the test loss of each model with a part treated in one way; None without a meaning.

    `extra` are the data of the further steps (`extra_data`).
    """
    if way in cut.missing:
        # The same reason for every training of the cut.
        return [None] * len(subjects)
    if way in (MEAN, OTHER):
        return [_part_loss(subject, cut.part, way, corpus) for subject in subjects]
    trainings = [_training(cut, subject) for subject in subjects]
    if way == TRAINED:
        further = replace(corpus, train=extra)
        _train_on(cut, trainings, further)
    found = []
    for training in trainings:
        model = training.model
        with guest(model):
            test_losses = evaluate(model, corpus.test)
        found.append(test_losses.token)
    return found


def _training(cut: Cut, subject: Subject) -> Training:
    """Return the training of a cut model that starts from the weights of the whole one."""
    # The weights are trained: there is nothing to warm up.
    recipe = replace(subject.recipe, warmup=0)
    if recipe.schedule in TO_AN_END:
        recipe = replace(recipe, schedule_epochs=1)
    model = cut.applied(subject)
    return Training(model, recipe, subject.seed)


def _train_on(cut: Cut, trainings: Trainings, corpus: Corpus):
    """Train for one epoch, as a pack if that is possible and pays."""
    if _packs(cut, trainings, corpus):
        KeptTrainers().train_epoch(trainings, corpus)
        return
    for training in trainings:
        list(fit(training, corpus, 1))


def _packs(cut: Cut, trainings: Trainings, corpus: Corpus) -> bool:
    """Return whether a pack of the trainings is possible and pays."""
    if cut.left is None and cut is not WHOLE:
        return False  # a hook is in no pack
    keys = {pack_key(t.model.config, t.recipe) for t in trainings}
    if len(trainings) == 1 or len(keys) > 1:
        return False
    first = trainings[0]
    pays = packing_pays(first.model.config, first.recipe, corpus.task)
    return pays and not reason_not_packable(first.model)


def extra_data(corpus: Corpus, batch: int, steps: int) -> Sequences:
    """Return training sequences of so many steps, equal for all models."""
    data = corpus.train.for_epoch(0)
    size = len(data)
    count = min(batch, size) * steps
    generator = torch.Generator().manual_seed(0)
    # A few passes, each in an order of its own, where the corpus is smaller than `steps` batches.
    orders = [torch.randperm(size, generator=generator) for _ in range(0, count, size)]
    rows = torch.cat(orders)[:count]
    return gather_batch(data, rows, trim=False)


def _part_loss(subject: Subject, part: Part, way: str, corpus: Corpus) -> float:
    """Return the loss of a model with a part at its mean, or as on another sequence."""
    model = subject.model
    test = corpus.test
    total = 0.0
    with guest(model), evaluating(model), without_kernels(), torch.no_grad():
        means = subject.means.get(part.module)
        # Means of a module are the same for all its cuts: one pass over the training data.
        if means is None:
            means = _means(model, part, corpus.train.for_epoch(0))
            subject.means[part.module] = means
        for rows in _equal_lengths(test):
            if way == MEAN:
                see = at_mean(part, means)
            else:
                # Rolled by one: each sequence gets the activations of the one before it.
                others = gather_batch(test, rows.roll(1))
                recorded = Recorded()
                _nll(model, others, recorded, part)
                see = at_other(part, recorded)
            batch = gather_batch(test, rows)
            total += _nll(model, batch, see, part)
    return total / test.num_scored


def _means(model: LanguageModel, part: Part, train: Sequences) -> Means:
    means = Means()
    for rows in _equal_lengths(train):
        batch = gather_batch(train, rows)
        _nll(model, batch, means, part)
    return means


def _nll(model: LanguageModel, batch: Sequences, see: See, part: Part) -> float:
    with seen(model, see, part.module):
        scores: Tensor = model.log_prob(*batch.inputs)
    if batch.scored is not None:
        scores = scores.where(batch.scored, 0.0)
    # Sums of a whole corpus: float32 would lose digits of the last sequences.
    return -float(scores.double().sum())


def _equal_lengths(data: Sequences) -> Iterator[Tensor]:
    """Yield the rows of sequences of one length, so that no activation is that of padding."""
    for length in data.lengths.unique():
        has_length = data.lengths == length
        rows = has_length.nonzero().flatten()
        yield from rows.split(BATCH)
