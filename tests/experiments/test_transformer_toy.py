"""The toy regression: its anchors, its warm-up, its two published defects as options."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from lmzoo.config import from_dict
from lmzoo.errors import UserError
from lmzoo.experiments import transformer_toy
from lmzoo.experiments.transformer_toy import (
    AFFINE,
    CONSTANT,
    EPOCHS,
    LENGTH,
    NUMBERS,
    SILENCE,
    Toy,
    ToyModel,
    ToyRecipe,
    fresh,
    loss,
)

SMALL = ToyModel(layers=2, width=8, hidden=16)
SHORT = ToyRecipe(steps=10, tests=6, batch=4)


def test_the_anchors_are_those_of_silence_the_mean_and_the_best_affine_map() -> None:
    """2,000 batches, a million targets: the means are known to a few thousandths."""
    x, target = fresh(2000, torch.Generator().manual_seed(0))
    a, b = x.split(NUMBERS, dim=-1)
    assert x.shape == (2000, LENGTH, 2 * NUMBERS)
    assert target.equal((a + 1) ** 2 + b)
    assert loss(torch.zeros_like(target), target).item() == pytest.approx(SILENCE, abs=0.03)
    assert loss(torch.full_like(target, 2), target).item() == pytest.approx(CONSTANT, abs=0.03)
    affine = 2 + 2 * a + b
    assert loss(affine, target).item() == pytest.approx(AFFINE, abs=0.02)
    for worse in (affine + 0.1, 1.1 * affine, affine + 0.1 * a, affine - 0.1 * b):
        assert loss(worse, target) > loss(affine, target)


def test_an_output_of_zeros_costs_silence() -> None:
    toy = Toy(SMALL, ToyRecipe(tests=200), seed=0)
    nn.init.zeros_(toy.model.out.weight)
    nn.init.zeros_(toy.model.out.bias)
    tested = toy.test()
    assert tested.evaluating == pytest.approx(SILENCE, abs=0.05)
    assert tested.training == tested.evaluating


def test_as_it_is_drawn_it_costs_about_as_much_as_silence_and_more_than_the_best_constant() -> None:
    tested = Toy(ToyModel(), ToyRecipe(tests=2), seed=0).test()
    for untrained in (tested.evaluating, tested.training):
        assert CONSTANT < untrained < 2 * CONSTANT


@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_attention_is_among_positions_or_as_published_among_samples(*, batch_first: bool) -> None:
    model = Toy(from_dict(ToyModel, {**vars(SMALL), "batch_first": batch_first}), SHORT, 0).model
    x, _ = fresh(4, torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[1, 2] += 1
    moved = (model.eval()(changed) - model.eval()(x)).abs().amax(-1) > 1e-6
    reached = torch.zeros(4, LENGTH, dtype=torch.bool)
    reached[1 if batch_first else slice(None), slice(None) if batch_first else 2] = True
    assert moved.equal(reached)


def rates(recipe: ToyRecipe, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The learning rate of every step."""
    found = []

    class Watched(torch.optim.Adam):
        def step(self, closure: None = None) -> None:
            found.append(self.param_groups[0]["lr"])
            super().step(closure)

    monkeypatch.setattr(torch.optim, "Adam", Watched)
    list(Toy(SMALL, recipe, 0).fit())
    return found


def test_warmup_rises_linearly_from_its_first_share(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = ToyRecipe(steps=10, warmup=4, lr=1e-2)
    expected = [0.0025, 0.005, 0.0075, *[0.01] * 7]
    assert rates(warm, monkeypatch) == pytest.approx(expected)
    cold = ToyRecipe(steps=10, warmup=0, lr=1e-2)
    assert rates(cold, monkeypatch) == [0.01] * 10


@pytest.mark.parametrize("batch_first", [True, False])
def test_test_batches_computed_together_are_those_computed_one_by_one(
    *, batch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = from_dict(ToyModel, {**vars(SMALL), "dropout": 0.0, "batch_first": batch_first})
    together = Toy(model, ToyRecipe(tests=13, batch=4), 0).test()
    monkeypatch.setattr(transformer_toy, "TOGETHER", 1)
    alone = Toy(model, ToyRecipe(tests=13, batch=4), 0).test()
    assert together.evaluating == pytest.approx(alone.evaluating, rel=1e-5)
    assert together.training == pytest.approx(together.evaluating, rel=1e-5)


def test_dropout_tells_the_two_tests_apart() -> None:
    tested = Toy(SMALL, SHORT, 0).test()
    assert tested.training != tested.evaluating


def records(seed: int) -> Iterator[tuple[int, float]]:
    toy = Toy(SMALL, SHORT, seed)
    yield from ((record["epoch"], record["train_loss"]) for record in toy.fit())
    yield 0, toy.test().training


def test_a_training_is_a_function_of_its_seed_and_leaves_the_global_stream_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = list(records(0))
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(6)
    assert list(records(0)) == one
    assert list(records(1)) != one
    assert [epoch for epoch, _ in one] == [*range(1, EPOCHS + 1), 0]


def test_a_small_one_learns_and_one_of_dead_weights_learns_the_mean_only() -> None:
    """A shallow encoder comes below the best constant; weights near 0 stay there."""
    recipe = ToyRecipe(steps=100, tests=20, lr=1e-2)
    learned = Toy(ToyModel(layers=1, width=32, hidden=32, dropout=0), recipe, 0)
    list(learned.fit())
    assert learned.test().evaluating < 0.9 * CONSTANT
    stuck = Toy(ToyModel(layers=1, width=32, hidden=32, init="uniform_0.001"), recipe, 0)
    before = stuck.test().evaluating
    list(stuck.fit())
    assert 0.95 * CONSTANT < stuck.test().evaluating < before


@pytest.mark.parametrize(
    ("cls", "fields", "message"),
    [
        (ToyModel, {"init": "xavier"}, "no initialiser 'xavier'"),
        (ToyModel, {"width": 6}, "width: Input should be a multiple of 4, got 6"),
        (ToyRecipe, {"steps": 15}, "multiple of 10, got 15"),
        (ToyRecipe, {"warmup": -1}, "warmup"),
    ],
)
def test_bad_fields_are_refused(cls: type, fields: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_dict(cls, fields)
