"""Members join, leave, diverge and change places; each ends where it would have ended alone."""

import dataclasses
import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.train.packed import trainer as together
from lmzoo.train.packed.trainer import fit_packed, train_packed_epoch
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import Training, fit
from tests.laws.fusing import agree

SMALL = Recipe(batch=16)


def _member(corpus, seed=0, recipe=SMALL, **fields):
    config = zoo.config("DLM46", width=4, emission={"components": 3}, **fields)
    return Training(zoo.build(config, corpus.task, seed), recipe, seed)


def _alone(training, corpus, epochs):
    assert list(fit(training, corpus, epochs))
    return training


RECIPE_KINDS = [
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1),
    Recipe(batch=16, optimiser="rmsprop"),
    Recipe(batch=16, loss="sentence"),
    dataclasses.replace(RECIPES["published"], batch=30),
]


@pytest.mark.parametrize(
    "recipe", RECIPE_KINDS, ids=lambda r: f"{r.optimiser}-{r.accumulate}-{r.loss}"
)
def test_every_recipe_is_fused_as_it_is(corpus, recipe):
    recipes = [recipe, dataclasses.replace(recipe, lr=3e-3, clip=0.1), recipe]
    alone, fused = ([_member(corpus, i, r) for i, r in enumerate(recipes)] for _ in range(2))
    list(fit_packed(fused, corpus, 2))
    for one, other in zip(alone, fused, strict=True):
        agree(_alone(one, corpus, 2), other)


def test_members_join_at_other_epochs_and_leave(corpus):
    late, early, gone = (_member(corpus, seed) for seed in range(3))
    list(fit_packed([early, gone], corpus, 1))
    list(fit_packed([early, late], corpus, 3))
    assert [t.epoch for t in (late, early, gone)] == [3, 3, 1]
    for seed, training in enumerate((late, early, gone)):
        agree(_alone(_member(corpus, seed), corpus, training.epoch), training)


def test_a_run_changes_between_fused_and_alone_at_any_epoch(corpus, tmp_path):
    whole = _alone(_member(corpus, 1), corpus, 5)
    state = None
    for epoch in range(1, 6):
        now = _member(corpus, 1)
        if state is not None:
            now.load(torch.load(tmp_path / "state.pt", weights_only=True))
        if epoch % 2:
            train_packed_epoch([_member(corpus, 7), now], corpus)
        else:
            _alone(now, corpus, epoch)
        state = now.dump()
        torch.save(state, tmp_path / "state.pt")
    agree(whole, now)
    assert now.best_epoch == whole.best_epoch
    expected = whole.dump()
    assert set(state) == set(expected)
    assert state["optimiser"]["param_groups"] == expected["optimiser"]["param_groups"]
    assert state["optimiser"]["state"].keys() == expected["optimiser"]["state"].keys()


def test_a_checkpoint_holds_its_own_member_only(corpus, tmp_path):
    fused = [_member(corpus, seed) for seed in range(3)]
    train_packed_epoch(fused, corpus)
    torch.save(fused[0].dump(), tmp_path / "fused.pt")
    torch.save(_alone(_member(corpus), corpus, 1).dump(), tmp_path / "alone.pt")
    sizes = [(tmp_path / name).stat().st_size for name in ("fused.pt", "alone.pt")]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def test_a_diverging_member_touches_nobody(corpus):
    ill, well = _member(corpus, 0), _member(corpus, 1)
    with torch.no_grad():
        ill.model.embedding.weight[5, 0] = math.nan
    seen = [[t.seed for t in going] for going in fit_packed([ill, well], corpus, 3)]
    assert seen == [[0, 1], [1], [1]]
    assert ill.diverged
    assert ill.record["train_token"] is ill.record["valid_token"] is None
    agree(_alone(_member(corpus, 1), corpus, 3), well)


@pytest.mark.parametrize("cuts", [[0], [1], [2], [3], [4], [5], [7], [3, 2, 4, 5], [0, 2, 4, 5]])
def test_cuts_are_numbers(corpus, cuts):
    alone, fused = (_member(corpus, 1, cell={"name": "mgu", "cuts": cuts}) for _ in range(2))
    list(fit_packed([_member(corpus), fused, _member(corpus, 2)], corpus, 2))
    agree(_alone(alone, corpus, 2), fused)
    assert {n: p.shape for n, p in fused.model.named_parameters()} == {
        n: p.shape for n, p in alone.model.named_parameters()
    }


@pytest.mark.parametrize("mutations", [[0], [1], [3], [0, 1], [0, 4]])
def test_cuts_of_the_mgru_are_numbers(corpus, mutations):
    cell = {"name": "mgru", "mutations": mutations}
    wild = {"name": "mgru", "mutations": [4] if 4 in mutations else []}
    alone, fused = (_member(corpus, 1, cell=cell) for _ in range(2))
    list(fit_packed([_member(corpus, 0, cell=wild), fused], corpus, 2))
    agree(_alone(alone, corpus, 2), fused)


def test_another_shape_is_our_own_mistake(corpus):
    carry = _member(corpus, cell={"name": "mgu", "cuts": [6]})
    with pytest.raises(AssertionError, match="2 shapes"):
        train_packed_epoch([_member(corpus), carry], corpus)


def test_the_global_generator_is_left_alone(corpus):
    fused = [_member(corpus, seed) for seed in range(2)]
    before = torch.random.get_rng_state()
    list(fit_packed(fused, corpus, 1))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("evaluated", [1, 7, 40])
def test_validation_in_parts_is_that_of_each_member_alone(corpus, monkeypatch, evaluated):
    monkeypatch.setattr(together, "LEAST", 1)
    monkeypatch.setattr(together, "EVALUATED", evaluated)
    members = [_member(corpus, seed) for seed in range(2)]
    for record, seed in zip(train_packed_epoch(members, corpus), range(2), strict=True):
        alone = _alone(_member(corpus, seed), corpus, 1).record
        for key in ("valid_token", "valid_sentence"):
            assert record[key] == pytest.approx(alone[key], abs=1e-5)
