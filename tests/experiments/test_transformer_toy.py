"""The toy regression: reference losses, warm-up and the two published defects."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from lmzoo.config import from_dict
from lmzoo.errors import UserError
from lmzoo.experiments import transformer_toy
from lmzoo.experiments.transformer_toy import (
    AFFINE_LOSS,
    CONSTANT_LOSS,
    EPOCHS,
    LENGTH,
    NUMBERS,
    ZERO_LOSS,
    ToyModel,
    ToyRecipe,
    ToyTraining,
    draw_batch,
    loss,
)

SMALL = ToyModel(layers=2, width=8, hidden=16)
SHORT = ToyRecipe(steps=10, tests=6, batch=4)


def test_reference_losses_of_simple_predictions() -> None:
    """A million targets give the means with an error of a few thousandths."""
    x, target = draw_batch(2000, torch.Generator().manual_seed(0))
    a, b = x.split(NUMBERS, dim=-1)
    assert x.shape == (2000, LENGTH, 2 * NUMBERS)
    assert target.equal((a + 1) ** 2 + b)
    assert loss(torch.zeros_like(target), target).item() == pytest.approx(ZERO_LOSS, abs=0.03)
    assert loss(torch.full_like(target, 2), target).item() == pytest.approx(CONSTANT_LOSS, abs=0.03)
    affine = 2 + 2 * a + b
    assert loss(affine, target).item() == pytest.approx(AFFINE_LOSS, abs=0.02)
    for other in (affine + 0.1, 1.1 * affine, affine + 0.1 * a, affine - 0.1 * b):
        assert loss(other, target) > loss(affine, target)


def test_zero_outputs_have_the_zero_loss() -> None:
    training = ToyTraining(SMALL, ToyRecipe(tests=200), seed=0)
    nn.init.zeros_(training.model.out.weight)
    nn.init.zeros_(training.model.out.bias)
    losses = training.test()
    assert losses.dropout_off == pytest.approx(ZERO_LOSS, abs=0.05)
    assert losses.dropout_on == losses.dropout_off


def test_an_untrained_model_is_worse_than_the_best_constant() -> None:
    losses = ToyTraining(ToyModel(), ToyRecipe(tests=2), seed=0).test()
    for untrained in (losses.dropout_off, losses.dropout_on):
        assert CONSTANT_LOSS < untrained < 2 * CONSTANT_LOSS


@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_attention_is_between_positions_or_samples(*, batch_first: bool) -> None:
    model = ToyTraining(
        from_dict(ToyModel, {**vars(SMALL), "batch_first": batch_first}), SHORT, 0
    ).model
    x, _ = draw_batch(4, torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[1, 2] += 1
    affected = (model.eval()(changed) - model.eval()(x)).abs().amax(-1) > 1e-6
    expected = torch.zeros(4, LENGTH, dtype=torch.bool)
    expected[1 if batch_first else slice(None), slice(None) if batch_first else 2] = True
    assert affected.equal(expected)


def learning_rates(recipe: ToyRecipe, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the learning rate of every step."""
    rates = []

    class RecordingAdam(torch.optim.Adam):
        def step(self, closure: None = None) -> None:
            rates.append(self.param_groups[0]["lr"])
            super().step(closure)

    monkeypatch.setattr(torch.optim, "Adam", RecordingAdam)
    list(ToyTraining(SMALL, recipe, 0).fit())
    return rates


def test_warmup_rises_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = ToyRecipe(steps=10, warmup=4, lr=1e-2)
    expected = [0.0025, 0.005, 0.0075, *[0.01] * 7]
    assert learning_rates(warm, monkeypatch) == pytest.approx(expected)
    cold = ToyRecipe(steps=10, warmup=0, lr=1e-2)
    assert learning_rates(cold, monkeypatch) == [0.01] * 10


@pytest.mark.parametrize("batch_first", [True, False])
def test_test_batches_computed_at_once_equal_separate_batches(
    *, batch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = from_dict(ToyModel, {**vars(SMALL), "dropout": 0.0, "batch_first": batch_first})
    at_once = ToyTraining(model, ToyRecipe(tests=13, batch=4), 0).test()
    monkeypatch.setattr(transformer_toy, "TEST_CHUNK", 1)
    separate = ToyTraining(model, ToyRecipe(tests=13, batch=4), 0).test()
    assert at_once.dropout_off == pytest.approx(separate.dropout_off, rel=1e-5)
    assert at_once.dropout_on == pytest.approx(at_once.dropout_off, rel=1e-5)


def test_dropout_changes_the_test_loss() -> None:
    losses = ToyTraining(SMALL, SHORT, 0).test()
    assert losses.dropout_on != losses.dropout_off


def training_losses(seed: int) -> Iterator[tuple[int, float]]:
    training = ToyTraining(SMALL, SHORT, seed)
    yield from ((record["epoch"], record["train_loss"]) for record in training.fit())
    yield 0, training.test().dropout_on


def test_a_training_depends_on_its_seed_only_and_keeps_the_global_generator() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = list(training_losses(0))
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(6)
    assert list(training_losses(0)) == first
    assert list(training_losses(1)) != first
    assert [epoch for epoch, _ in first] == [*range(1, EPOCHS + 1), 0]


def test_a_small_model_learns_and_one_with_tiny_weights_learns_the_mean_only() -> None:
    """A shallow encoder beats the best constant; one with weights near 0 does not."""
    recipe = ToyRecipe(steps=100, tests=20, lr=1e-2)
    learned = ToyTraining(ToyModel(layers=1, width=32, hidden=32, dropout=0), recipe, 0)
    list(learned.fit())
    assert learned.test().dropout_off < 0.9 * CONSTANT_LOSS
    stuck = ToyTraining(ToyModel(layers=1, width=32, hidden=32, init="uniform_0.001"), recipe, 0)
    before = stuck.test().dropout_off
    list(stuck.fit())
    assert 0.95 * CONSTANT_LOSS < stuck.test().dropout_off < before


@pytest.mark.parametrize(
    ("cls", "fields", "message"),
    [
        (ToyModel, {"init": "xavier"}, "unknown initialiser 'xavier'"),
        (ToyModel, {"width": 6}, "width: Input should be a multiple of 4, got 6"),
        (ToyRecipe, {"steps": 15}, "multiple of 10, got 15"),
        (ToyRecipe, {"warmup": -1}, "warmup"),
    ],
)
def test_invalid_fields_are_rejected(cls: type, fields: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_dict(cls, fields)
