"""Training: records, resuming, the best weights, divergence, recipes, clipping and evaluation.

Clipping of pack members: `test_pack_parameters.py` and `test_pack_trainer.py`.
"""

import dataclasses
import io
import math

import pytest
import torch
from torch import Tensor

from lmzoo.data.corpus import Corpus
from lmzoo.train.evaluate import evaluate
from lmzoo.train.recipe import RECIPES, Recipe
from lmzoo.train.trainer import Training, fit
from tests.train.members import RECIPE, member, model_of

SMALL = Recipe(batch=16)
TIMINGS = ("seconds", "tokens_per_second")


def _records(epochs) -> list[dict]:
    return [{k: v for k, v in record.items() if k not in TIMINGS} for record in epochs]


def test_a_resumed_training_equals_an_uninterrupted_one_bit_by_bit(corpus, tmp_path):
    uninterrupted = Training(model_of(corpus), SMALL, seed=3)
    expected = _records(fit(uninterrupted, corpus, 6))

    first = Training(model_of(corpus), SMALL, seed=3)
    records = _records(fit(first, corpus, 2))
    torch.save(first.dump(), tmp_path / "state.pt")
    second = Training(model_of(corpus, seed=9), SMALL, seed=3)
    second.load(torch.load(tmp_path / "state.pt", weights_only=True))
    records += _records(fit(second, corpus, 6))

    assert records == expected
    for name, value in uninterrupted.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name


def test_another_seed_gives_another_order(corpus):
    first, second = (_records(fit(Training(model_of(corpus), SMALL, s), corpus, 1)) for s in (0, 1))
    assert first != second


def test_a_diverged_run_stops_and_records_null_losses(model, corpus):
    with torch.no_grad():
        model.embedding.weight.fill_(math.inf)
    training = Training(model, SMALL, seed=0)
    records = list(fit(training, corpus, 5))
    assert len(records) == 1
    assert training.diverged
    assert records[0]["train_token"] is records[0]["valid_token"] is None


def test_the_best_weights_are_those_of_the_best_epoch(corpus):
    training = Training(model_of(corpus), Recipe(batch=16, lr=0.3), seed=0)
    losses, weights = [], []
    for record in fit(training, corpus, 8):
        losses.append(record["valid_token"])
        weights.append({k: v.clone() for k, v in training.model.state_dict().items()})
    best = losses.index(min(losses))
    assert training.best_epoch == best + 1
    for name, value in training.best_weights.items():
        assert torch.equal(value, weights[best][name])


def test_best_weights_are_saved_once_if_current_and_kept_after_worse_epochs(corpus):
    training = Training(model_of(corpus), Recipe(batch=16, lr=0.03), seed=0)
    next(fit(training, corpus, 1))
    assert training.best_epoch == 1
    once, twice = io.BytesIO(), io.BytesIO()
    torch.save(state := training.dump(), once)
    copied = {**state["best"], "weights": training.best_weights}
    torch.save({**state, "best": copied}, twice)
    assert len(once.getvalue()) < 0.9 * len(twice.getvalue())
    once.seek(0)
    resumed = Training(model_of(corpus), Recipe(batch=16, lr=3.0), seed=0)
    resumed.load(torch.load(once, weights_only=True))
    expected = {name: value.clone() for name, value in training.best_weights.items()}
    assert next(fit(resumed, corpus, 2))["valid_token"] > resumed.best_loss
    later = io.BytesIO()
    torch.save(resumed.dump(), later)
    later.seek(0)
    for best in (resumed.best_weights, torch.load(later, weights_only=True)["best"]["weights"]):
        assert all(torch.equal(best[name], value) for name, value in expected.items())


def _before_steps(training, action):
    """Call `action` before every optimiser step."""
    step = training.optimiser.step
    training.optimiser.step = lambda: (action(), step())


def test_published_gradients_accumulate_within_an_epoch(corpus):
    """With constant weights, the gradient of the second step is g_1 + g_2."""
    recipe = dataclasses.replace(RECIPES["published"], batch=30)
    training = Training(model_of(corpus), recipe, seed=0)
    gradients = []

    def record():
        gradients.append([p.grad.clone() for p in training.model.parameters()])
        training.optimiser.param_groups[0]["lr"] = 0.0  # constant weights

    _before_steps(training, record)
    list(fit(training, corpus, 2))
    assert len(gradients) == 4
    alone = Training(model_of(corpus), dataclasses.replace(recipe, accumulate="step"), seed=0)
    singles = []
    weights = list(alone.model.parameters())
    alone.optimiser.step = lambda: singles.append([p.grad.clone() for p in weights])
    list(fit(alone, corpus, 1))
    for total, first, second in zip(gradients[1], *singles, strict=True):
        torch.testing.assert_close(total, first + second)


def test_losses_equal_their_definitions(model, corpus):
    losses = evaluate(model, corpus.test, batch=7)
    with torch.no_grad():
        nll = -model.log_prob(corpus.test.tokens, corpus.test.lengths).double().sum(1)
    n = (corpus.test.lengths - 1).double()
    assert losses.token == pytest.approx(float(nll.sum() / n.sum()), abs=1e-6)
    assert losses.sentence == pytest.approx(float((nll / n).mean()), abs=1e-6)
    assert losses.tokens == corpus.test.num_scored
    torch.testing.assert_close(losses.nll, nll, atol=1e-5, rtol=0)


BELOW, ABOVE = 0.05, 1e3
"""A threshold below the norm of every gradient in these tests, and one above."""


def new_training(corpus: Corpus, clip: float | None, value: float | None = None) -> Training:
    return member(corpus, recipe=dataclasses.replace(RECIPE, clip=clip, clip_value=value))


def step_gradients(corpus: Corpus, clip: float | None, value: float | None = None) -> list[Tensor]:
    """Return the gradient that the optimiser receives in each step of an epoch."""
    training, recorded = new_training(corpus, clip, value), []
    assert training.optimiser is not None
    step = training.optimiser.step

    def record_and_step() -> None:
        gradients = [p.grad for p in training.model.parameters() if p.grad is not None]
        recorded.append(torch.cat([gradient.flatten() for gradient in gradients]))
        step()

    training.optimiser.step = record_and_step  # type: ignore[method-assign]
    list(fit(training, corpus, 1))
    return recorded


def assert_same_direction(actual: Tensor, expected: Tensor) -> None:
    """Assert that the cosine is 1, up to float32 rounding."""
    cosine = torch.cosine_similarity(actual.double(), expected.double(), dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-10)


def test_clipping_keeps_the_direction(corpus):
    before, after = step_gradients(corpus, None)[0], step_gradients(corpus, BELOW)[0]
    assert before.norm() > 2 * BELOW
    assert after.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(after, before)


def test_a_threshold_that_is_never_reached_changes_no_bit(corpus):
    unclipped, clipped = step_gradients(corpus, None), step_gradients(corpus, ABOVE)
    assert len(unclipped) > 2
    assert max(gradient.norm() for gradient in unclipped) < ABOVE
    assert all(a.equal(b) for a, b in zip(unclipped, clipped, strict=True))


def test_each_number_is_clipped_by_its_value_before_the_norm(corpus):
    """In the first step, because the later ones start from other weights."""
    before, most = step_gradients(corpus, None)[0], 0.01
    after = step_gradients(corpus, None, most)[0]
    assert (before.abs() > most).any()
    assert (before.abs() < most).any()
    assert after.equal(before.clamp(-most, most))
    both = step_gradients(corpus, BELOW, most)[0]
    assert both.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(both, after)


@pytest.mark.parametrize("before", [0.0, 0.1])
def test_a_training_that_goes_on_from_a_dump_follows_its_own_recipe(corpus, before):
    """As PBT needs it: another weight decay gives other groups, in another order."""
    donor = Training(model_of(corpus), Recipe(optimiser="adamw", weight_decay=before), seed=0)
    next(fit(donor, corpus, 1))
    own = Recipe(optimiser="adamw", weight_decay=0.5, beta2=0.9, lr=0.05)
    training = Training(model_of(corpus), own, seed=0)
    training.load(donor.dump())
    assert training.optimiser is not None
    assert donor.optimiser is not None
    groups = training.optimiser.param_groups
    assert {(group["weight_decay"], *group["betas"]) for group in groups} == {
        (0.5, 0.9, 0.9),
        (0.0, 0.9, 0.9),
    }
    for name, parameter in training.parameters.items():
        mean = training.optimiser.state[parameter]["exp_avg"]
        assert torch.equal(mean, donor.optimiser.state[donor.parameters[name]]["exp_avg"]), name
    next(fit(training, corpus, 2))
    assert training.optimiser.param_groups[0]["lr"] == 0.05
