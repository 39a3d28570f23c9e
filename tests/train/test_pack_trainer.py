"""Pack members may join, leave, diverge and change packs; each ends as if trained alone."""

import dataclasses
import math

import pytest
import torch

from lmzoo.laws_of_training.packing import assert_trainings_equal
from lmzoo.train import pack_trainer as packed_trainer
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import fit
from tests.cases import cases
from tests.train.members import member

RECIPE_KINDS = [
    Recipe(batch=16, optimiser="adamw", weight_decay=0.1),
    Recipe(batch=16, optimiser="rmsprop"),
    Recipe(batch=16, optimiser="sgd", weight_decay=0.1, schedule="linear", schedule_epochs=2),
    Recipe(batch=16, loss="sentence"),
    Recipe(batch=16, clip_value=0.003),
    Recipe(batch=16, clip_value=0.003, optimiser="rmsprop"),
    dataclasses.replace(RECIPES["published"], batch=30),
    dataclasses.replace(RECIPES["muon_wsd"], batch=16, weight_decay=0.1, schedule_epochs=2),
    Recipe(batch=16, weight_decay=0.1, rate_tables=0.3, parametrisation="mup", base_width=8),
]


def _train_alone(training, corpus, epochs):
    assert list(fit(training, corpus, epochs))
    return training


def assert_packing_changes_nothing(corpus, members):
    """Check that runs of these arguments of `member` train in a pack as each does alone."""
    packed = []
    alone = []
    for seed, fields in enumerate(members):
        packed.append(member(corpus, seed, **fields))
        training = member(corpus, seed, **fields)
        alone.append(_train_alone(training, corpus, 2))
    list(KeptTrainers().fit(packed, corpus, 2))
    for ours, expected in zip(packed, alone, strict=True):
        assert_trainings_equal(ours, expected)


def _name(recipe):
    return f"{recipe.optimiser}-{recipe.accumulate}-{recipe.loss}-{recipe.clip_value}"


@pytest.mark.parametrize("recipe", RECIPE_KINDS, ids=_name)
def test_packing_does_not_change_the_result_of_any_recipe(corpus, recipe):
    # Rates and thresholds differ between the members of a pack.
    other = dataclasses.replace(recipe, lr=3e-3, clip=0.1)
    members = [{"recipe": each} for each in (recipe, other, recipe)]
    assert_packing_changes_nothing(corpus, members)


def test_members_may_join_at_other_epochs_and_leave(corpus):
    late = member(corpus, 0)
    early = member(corpus, 1)
    leaving = member(corpus, 2)
    list(KeptTrainers().fit([early, leaving], corpus, 1))
    list(KeptTrainers().fit([early, late], corpus, 3))
    epochs = {late: 3, early: 3, leaving: 1}
    for training, epoch in epochs.items():
        same_seed = member(corpus, training.seed)
        alone = _train_alone(same_seed, corpus, epoch)
        assert training.epoch == epoch
        assert_trainings_equal(training, alone)


TWO_GROUPS = Recipe(batch=16, weight_decay=0.1)
"""Parameters with and without decay are two groups."""


@pytest.fixture
def alone(corpus):
    return _train_alone(member(corpus, 1, TWO_GROUPS), corpus, 5)


@pytest.fixture
def in_turn(corpus, tmp_path):
    """Return a run that alternates between a pack and training alone, from a file each time."""
    path = tmp_path / "state.pt"
    for epoch in range(1, 6):
        training = member(corpus, 1, TWO_GROUPS)
        if epoch > 1:
            state = torch.load(path, weights_only=True)
            training.load(state)
        # Odd epochs are those of a pack.
        if epoch % 2:
            KeptTrainers().train_epoch([member(corpus, 7), training], corpus)
        else:
            _train_alone(training, corpus, epoch)
        torch.save(training.dump(), path)
    return training


def test_a_run_may_change_between_pack_and_alone_at_any_epoch(alone, in_turn):
    assert_trainings_equal(in_turn, alone)
    assert in_turn.best_epoch == alone.best_epoch


def test_the_state_of_a_pack_member_has_the_form_of_one_alone(alone, in_turn):
    state = in_turn.dump()
    expected = alone.dump()
    assert set(state) == set(expected)
    optimiser = state["optimiser"]
    expected_optimiser = expected["optimiser"]
    assert optimiser["param_groups"] == expected_optimiser["param_groups"]
    assert optimiser["state"].keys() == expected_optimiser["state"].keys()


def test_a_diverging_member_does_not_affect_the_others(corpus):
    diverging = member(corpus, 0)
    healthy = member(corpus, 1)
    with torch.no_grad():
        # A token with this id makes the loss NaN.
        diverging.model.embedding.weight[5, 0] = math.nan
    active = []
    for pack in KeptTrainers().fit([diverging, healthy], corpus, 3):
        active.append([training.seed for training in pack])
    # Both trained the first epoch.
    assert active == [[0, 1], [1], [1]]
    assert diverging.diverged
    assert diverging.record["train_token"] is diverging.record["valid_token"] is None
    alone = _train_alone(member(corpus, 1), corpus, 3)
    assert_trainings_equal(healthy, alone)


@cases("train/cases.toml", "packs", "name, field, cuts")
def test_members_with_cuts_equal_runs_alone(corpus, name, field, cuts):
    cells = [{"name": name, field: own} for own in cuts]
    members = [{"cell": cell} for cell in cells]
    assert_packing_changes_nothing(corpus, members)


def test_packed_training_does_not_change_the_global_generator(corpus):
    packed = [member(corpus, 0), member(corpus, 1)]
    before = torch.random.get_rng_state()
    list(KeptTrainers().fit(packed, corpus, 1))
    after = torch.random.get_rng_state()
    assert before.equal(after)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_the_evaluation_batch_does_not_change_validation_losses(corpus, monkeypatch, size):
    # Or small batches would be enlarged.
    monkeypatch.setattr(packed_trainer, "MIN_EVALUATION_BATCH", 1)
    monkeypatch.setattr(packed_trainer, "EVALUATION_BATCH", size)
    members = [member(corpus, 0), member(corpus, 1)]
    records = KeptTrainers().train_epoch(members, corpus)
    for seed, record in enumerate(records):
        alone = _train_alone(member(corpus, seed), corpus, 1)
        for key in ("valid_token", "valid_sentence"):
            # Sums in another order.
            expected = pytest.approx(alone.record[key], abs=1e-5)
            assert record[key] == expected
