"""Members trained as one program end where each would have ended alone."""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch

from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.train.packed.shapes import reason_not_packable
from lmzoo.train.packed.trainer import train_packed_epoch
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.laws.ask import cost, fresh, same
from tests.tiny import CLOSE, FINE, batch, sources

RECIPES = (
    Recipe(batch=4, lr=1e-2),
    Recipe(batch=4, lr=3e-3, clip=None, weight_decay=1e-2),
    Recipe(batch=4, lr=2e-2, clip=0.1, warmup=5),
)


def law_fused_equals_alone(model: LanguageModel) -> None:
    """Weights and losses after an epoch, of members with other seeds, rates, clips; or a reason.

    They are at different epochs, so that one's long batches come with another's short ones. In
    float64: where a gradient is nothing but rounding, Adam's step is as long as elsewhere.
    """
    if reason := reason_not_packable(model):
        assert model.closed_form or "vmap" in reason or _draws(model), f"refused: {reason}"
        return
    with _double():
        corpus = random_corpus(model)
        alone, fused = ([member(model, i, r) for i, r in enumerate(RECIPES)] for _ in range(2))
        for epoch, (training, other) in enumerate(zip(alone, fused, strict=True)):
            training.epoch = other.epoch = epoch
            assert list(fit(training, corpus, epoch + 1))
        assert train_packed_epoch(fused, corpus)
    for one, other in zip(alone, fused, strict=True):
        agree(one, other, FINE)


@contextlib.contextmanager
def _double() -> Iterator[None]:
    """While it lasts, whatever is made is made in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _draws(model: LanguageModel) -> bool:
    """Whether what training lowers is a draw and not a number."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        costs = []
        for seed in range(5):
            torch.manual_seed(seed)
            costs.append(cost(model.train(), *batch(model.task)))
    return len(set(map(float, costs))) > 1


def agree(one: Training, other: Training, tolerance: float = CLOSE) -> None:
    """Both trainings stand at the same place."""
    assert (one.epoch, one.steps) == (other.epoch, other.steps)
    for key in ("train_token", "valid_token", "valid_sentence"):
        found, expected = (torch.tensor(t.record[key]) for t in (other, one))
        same(found, expected, tolerance, key)
    for name, weight in one.model.state_dict().items():
        same(other.model.state_dict()[name], weight, tolerance, name)
    assert one.optimiser is not None
    assert other.optimiser is not None
    expected, found = one.optimiser.state_dict(), other.optimiser.state_dict()
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for place, state in expected["state"].items():
        assert found["state"][place].keys() == state.keys()
        for key, value in state.items():
            same(found["state"][place][key], value, tolerance, f"{key} of parameter {place}")


def member(model: LanguageModel, seed: int, recipe: Recipe) -> Training:
    """A training of this model from its own weights, in the precision that is usual now."""
    return Training(fresh(model, seed).to(torch.get_default_dtype()), recipe, seed)


def random_corpus(model: LanguageModel) -> Corpus:
    """Ten random sequences to train on, so that one batch of four is a short one."""
    parts = [_sequences(model, count, seed) for seed, count in enumerate((10, 6, 2))]
    return Corpus("random", Vocabulary(SPECIALS), *parts, unit="word", source="made here")


def _sequences(model: LanguageModel, count: int, seed: int) -> Sequences:
    part = Sequences(*batch(model.task, count, seed))
    if not model.conditional:
        return part
    return dataclasses.replace(part, given=sources(model.task, count, seed))
