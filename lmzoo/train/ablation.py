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

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.functional.copied import copied
from lmzoo.inspect.interventions import Means, Part, Recorded, See, at_mean, at_other, at_zero, seen
from lmzoo.inspect.module_cuts import HOLD, ZERO, apply_cut, cuts
from lmzoo.kernels.device import device_of, device_scope
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.kernels.guest import evaluating, guest
from lmzoo.train.cut_weights import Variant, inherited
from lmzoo.train.evaluate import evaluate
from lmzoo.train.optimisers import build_model
from lmzoo.train.pack_compatibility import pack_key, packing_pays, reason_not_packable
from lmzoo.train.pack_trainer import PackedTrainer
from lmzoo.train.recipe import TO_AN_END, Recipe
from lmzoo.train.trainer import Training, fit

ZEROED, MEAN, OTHER, TRAINED = WAYS = ("zero", "mean", "other", "trained")
NO_PRODUCT = "no activation: it is not what weights of its own compute"
NO_OUTPUT = "no activation: it is not the output of a submodule"
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


@dataclass(frozen=True)
class Cut:
    """A cut of the models of a point, and the part that it removes."""

    label: str
    config: Any = None
    """The config of the cut model; None: the cut is one of `module_cuts.py`."""
    part: Part | None = None
    """None without an activation; `missing` says why."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Way -> why it has no meaning."""


WHOLE = Cut("nothing")


def config_cut(variant: Variant, subject: Subject, corpus: Corpus) -> Cut:
    """Return a cut of a config; a `UserError` says that the model cannot be built."""
    whole, cut = (
        build_model(config, corpus.task, 0, subject.recipe)
        for config in (subject.model.config, variant.config)
    )
    left = inherited(whole, cut)
    label, config = variant.label, variant.config
    if left.own:
        names = ", ".join(left.own)
        reason = f"the cut has weights of its own: {names}"
        return Cut(label, config, missing=dict.fromkeys((ZEROED, MEAN, OTHER), reason))
    left.load(cut, subject.model.state_dict())
    part = Part(left.removed)
    if _is_cut(subject.model, cut, part, corpus.test):
        return Cut(label, config, part)
    return Cut(label, config, missing=dict.fromkeys((MEAN, OTHER), NO_PRODUCT))


@torch.no_grad()
def _is_cut(whole: LanguageModel, cut: LanguageModel, part: Part, data: Sequences) -> bool:
    """Return whether a model equals a cut one if the activations of a part are zero."""
    rows = next(_equal_lengths(data))
    batch = gather_batch(data, rows[:4])
    inputs = batch.tokens, batch.lengths, *batch.sources
    whole.eval()
    cut.eval()
    with without_kernels():
        with seen(whole, at_zero(part), part.module):
            at_zero_scores = whole.log_prob(*inputs)
        cut_scores = cut.log_prob(*inputs)
    return at_zero_scores.allclose(cut_scores, rtol=0, atol=TOLERANCE)


def module_cuts(subject: Subject, corpus: Corpus) -> list[Cut]:
    """Return the cuts of a model without named ones: parameters and submodules."""
    batch = gather_batch(corpus.test, next(_equal_lengths(corpus.test))[:8])
    named = cuts(subject.model, batch.tokens, batch.lengths, *batch.sources)
    weights = dict(subject.model.named_parameters())
    found = []
    for cut in named:
        kind, _, path = cut.name.partition(" ")
        part = None
        if kind == ZERO:
            part = Part(module=path)
        elif kind == HOLD and path in weights:
            whole = torch.ones_like(weights[path], dtype=torch.bool)
            part = Part({path: whole})
        if part is not None:
            changed: Any = copied(subject.model)
            apply_cut(changed, cut.name)
            if not _is_cut(subject.model, changed, part, corpus.test):
                part = None
        missing: Mapping[str, str] = {}
        if part is None:
            missing = {MEAN: NO_OUTPUT, OTHER: NO_OUTPUT}
        found.append(Cut(cut.name, part=part, missing=missing))
    return found


def losses(
    cut: Cut, way: str, subjects: Sequence[Subject], corpus: Corpus, extra: Sequences
) -> list[float | None]:
    """Return the test loss of each model with a part treated in one way; None without a meaning.

    `extra` are the data of the further steps (`extra_data`).
    """
    if way in cut.missing:
        return [None] * len(subjects)
    if way in (MEAN, OTHER):
        assert cut.part is not None
        return [_part_loss(own, cut.part, way, corpus) for own in subjects]
    data = None
    if way == TRAINED:
        data = extra
    trainings = [_training(cut, own, corpus) for own in subjects]
    first = trainings[0]
    if not _packs(cut, trainings, corpus):
        return [_loss_alone(training, corpus, data) for training in trainings]
    with guest(first.model, first.recipe.precision), device_scope(first.model):
        trainer = PackedTrainer(trainings)
        if data is not None:
            trainer.train_epoch(data)
        return [found.token for found in trainer.evaluate(corpus.test, corpus)]


def _packs(cut: Cut, trainings: Sequence[Training], corpus: Corpus) -> bool:
    first = trainings[0]
    one_program = len({pack_key(t.model.config, t.recipe) for t in trainings}) == 1
    is_module_cut = cut.config is None and cut is not WHOLE
    if len(trainings) < 2 or not one_program or is_module_cut:
        return False
    pays = packing_pays(first.model.config, first.recipe, corpus.task)
    return pays and not reason_not_packable(first.model)


def _loss_alone(training: Training, corpus: Corpus, data: Sequences | None) -> float:
    if data is not None:
        own = dataclasses.replace(corpus, train=data)
        [_] = fit(training, own, 1)
    with guest(training.model):
        return evaluate(training.model, corpus.test).token


def _training(cut: Cut, subject: Subject, corpus: Corpus) -> Training:
    """Return the training of a cut model that starts from the weights of the whole one."""
    recipe = dataclasses.replace(subject.recipe, warmup=0)
    if recipe.schedule in TO_AN_END:
        recipe = dataclasses.replace(recipe, schedule_epochs=1)
    if cut.config is None:
        model: Any = copied(subject.model)
        if cut is not WHOLE:
            apply_cut(model, cut.label)
        return Training(model, recipe, subject.seed)
    whole, scratch = (
        build_model(config, corpus.task, subject.seed, recipe)
        for config in (subject.model.config, cut.config)
    )
    model = build_model(cut.config, corpus.task, subject.seed, recipe)
    model.to(device_of(subject.model))
    inherited(whole, scratch).load(model, subject.model.state_dict())
    return Training(model, recipe, subject.seed)


def extra_data(corpus: Corpus, batch: int, steps: int) -> Sequences:
    """Return training sequences of so many steps, equal for all models."""
    data = corpus.train.for_epoch(0)
    count = min(batch, len(data)) * steps
    generator = torch.Generator().manual_seed(0)
    passes = -(-count // len(data))
    rows = torch.cat([torch.randperm(len(data), generator=generator) for _ in range(passes)])
    return gather_batch(data, rows[:count], trim=False)


def _part_loss(subject: Subject, part: Part, way: str, corpus: Corpus) -> float:
    """Return the loss of a model with a part at its mean, or as on another sequence."""
    model, test = subject.model, corpus.test
    total = 0.0
    with guest(model), evaluating(model), without_kernels(), torch.no_grad():
        if part.module not in subject.means:
            subject.means[part.module] = _means(model, part, corpus.train.for_epoch(0))
        for rows in _equal_lengths(test):
            if way == MEAN:
                see = at_mean(part, subject.means[part.module])
            else:
                recorded = Recorded()
                _nll(model, gather_batch(test, rows.roll(1)), recorded, part)
                see = at_other(part, recorded)
            total += _nll(model, gather_batch(test, rows), see, part)
    return total / test.num_scored


def _means(model: LanguageModel, part: Part, train: Sequences) -> Means:
    means = Means()
    for rows in _equal_lengths(train):
        _nll(model, gather_batch(train, rows), means, part)
    return means


def _nll(model: LanguageModel, batch: Sequences, see: See, part: Part) -> float:
    with seen(model, see, part.module):
        scores: Tensor = model.log_prob(batch.tokens, batch.lengths, *batch.sources)
    if batch.scored is not None:
        scores = scores.where(batch.scored, 0.0)
    return -float(scores.double().sum())


def _equal_lengths(data: Sequences) -> Iterator[Tensor]:
    """Yield the rows of sequences of one length, so that no activation is that of padding."""
    for length in data.lengths.unique():
        yield from (data.lengths == length).nonzero().flatten().split(BATCH)
