"""Training: records, resuming, the best weights, divergence, recipes, clipping and evaluation.

Clipping of pack members: `test_pack_parameters.py` and `test_pack_trainer.py`.
"""

import copy
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

# They differ from run to run.
TIMINGS = ("seconds", "tokens_per_second")


def _records(epochs) -> list[dict]:
    """Return the records of epochs without what differs from run to run."""
    records = []
    for record in epochs:
        same = {name: record[name] for name in record if name not in TIMINGS}
        records.append(same)
    return records


def _train(training: Training, corpus: Corpus, epochs: int) -> list[dict]:
    return _records(fit(training, corpus, epochs))


def assert_same_weights(actual, expected):
    """Assert that all tensors are equal, bit by bit."""
    torch.testing.assert_close(dict(actual), dict(expected), rtol=0, atol=0)


def test_a_resumed_training_equals_an_uninterrupted_one_bit_by_bit(corpus):
    uninterrupted = Training(model_of(corpus), RECIPE, seed=3)
    expected = _train(uninterrupted, corpus, 6)

    first = Training(model_of(corpus), RECIPE, seed=3)
    records = _train(first, corpus, 2)
    # Another start, which the loaded weights replace.
    second = Training(model_of(corpus, seed=9), RECIPE, seed=3)
    second.load(read(saved(first.dump())))
    records += _train(second, corpus, 6)

    assert records == expected
    assert_same_weights(second.model.state_dict(), uninterrupted.model.state_dict())


def test_another_seed_gives_another_order(corpus):
    first = Training(model_of(corpus), RECIPE, seed=0)
    second = Training(model_of(corpus), RECIPE, seed=1)
    assert _train(first, corpus, 1) != _train(second, corpus, 1)


def test_a_diverged_run_stops_and_records_null_losses(model, corpus):
    with torch.no_grad():
        # The first loss is not finite.
        model.embedding.weight.fill_(math.inf)
    training = Training(model, RECIPE, seed=0)
    (record,) = fit(training, corpus, 5)
    assert training.diverged
    # JSON has no number for a loss that is not finite.
    assert record["train_token"] is record["valid_token"] is None


def test_the_best_weights_are_those_of_the_best_epoch(corpus):
    training = member(corpus, recipe=Recipe(batch=16, lr=0.3))
    best_loss = math.inf
    best_epoch = 0
    best_weights = {}
    for record in fit(training, corpus, 8):
        if record["valid_token"] < best_loss:
            best_loss = record["valid_token"]
            best_epoch = record["epoch"]
            best_weights = copy.deepcopy(training.model.state_dict())
    assert training.best_epoch == best_epoch
    assert_same_weights(training.best_weights, best_weights)


@pytest.fixture
def trained(corpus) -> Training:
    """Return a training of one epoch, whose weights are the best ones."""
    training = member(corpus, recipe=Recipe(batch=16, lr=0.03))
    next(fit(training, corpus, 1))
    # A first epoch is always the best so far.
    assert training.best_epoch == 1
    return training


def saved(state) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def read(file) -> dict:
    return torch.load(file, weights_only=True)


def test_best_weights_are_saved_once_if_they_are_the_current_ones(trained):
    state = trained.dump()
    copied = state["best"] | {"weights": trained.best_weights}
    once = saved(state)
    twice = saved(state | {"best": copied})
    # A second copy of the weights is more than a tenth of the file.
    assert len(once.getvalue()) < 0.9 * len(twice.getvalue())


def test_best_weights_are_kept_after_worse_epochs(trained, corpus):
    expected = copy.deepcopy(trained.best_weights)
    # With this rate, the next epoch is worse.
    resumed = member(corpus, recipe=Recipe(batch=16, lr=3.0))
    resumed.load(read(saved(trained.dump())))
    worse = next(fit(resumed, corpus, 2))
    assert worse["valid_token"] > resumed.best_loss
    later = read(saved(resumed.dump()))
    assert_same_weights(resumed.best_weights, expected)
    assert_same_weights(later["best"]["weights"], expected)


def _before_steps(training, action):
    """Call `action` before every optimiser step."""
    step = training.optimiser.step

    def act_and_step():
        action()
        step()

    training.optimiser.step = act_and_step


@pytest.fixture
def published() -> Recipe:
    return dataclasses.replace(RECIPES["published"], batch=30)


def _gradients(training):
    return [parameter.grad.clone() for parameter in training.model.parameters()]


def test_published_gradients_accumulate_within_an_epoch(corpus, published):
    """With constant weights, the gradient of the second step is g_1 + g_2."""
    accumulated = gradients_of_steps(corpus, published)
    by_step = dataclasses.replace(published, accumulate="step")
    first, second = gradients_of_steps(corpus, by_step)
    for total, one, other in zip(accumulated[1], first, second, strict=True):
        torch.testing.assert_close(total, one + other)


def gradients_of_steps(corpus, recipe):
    """Return the gradients of each step of an epoch, with constant weights."""
    training = member(corpus, recipe=recipe)
    gradients = []
    # The step is left out, so that the weights are constant.
    training.optimiser.step = lambda: gradients.append(_gradients(training))
    list(fit(training, corpus, 1))
    return gradients


def test_losses_equal_their_definitions(model, corpus):
    test = corpus.test
    losses = evaluate(model, test, batch=7)
    with torch.no_grad():
        scores = model.log_prob(test.tokens, test.lengths)
    nll = -scores.double().sum(1)
    # <start> is not scored.
    counts = test.lengths - 1
    per_token = float(nll.sum() / counts.sum())
    per_sentence = float((nll / counts).mean())
    assert losses.token == pytest.approx(per_token, abs=1e-6)
    assert losses.sentence == pytest.approx(per_sentence, abs=1e-6)
    assert losses.tokens == test.num_scored
    torch.testing.assert_close(losses.nll, nll, atol=1e-5, rtol=0)


BELOW = 0.05
ABOVE = 1e3
"""A threshold below the norm of every gradient in these tests, and one above."""


def step_gradients(corpus: Corpus, clip: float | None, value: float | None = None) -> list[Tensor]:
    """Return the gradient that the optimiser receives in each step of an epoch."""
    recipe = dataclasses.replace(RECIPE, clip=clip, clip_value=value)
    training = member(corpus, recipe=recipe)
    recorded = []

    def record():
        gradients = [gradient.flatten() for gradient in _gradients(training)]
        recorded.append(torch.cat(gradients))

    _before_steps(training, record)
    list(fit(training, corpus, 1))
    return recorded


def assert_same_direction(actual: Tensor, expected: Tensor):
    """Assert that the cosine is 1, up to float32 rounding."""
    cosine = torch.cosine_similarity(actual.double(), expected.double(), dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-10)


def test_clipping_keeps_the_direction(corpus):
    before = step_gradients(corpus, None)[0]
    after = step_gradients(corpus, BELOW)[0]
    # Or clipping would have nothing to do.
    assert before.norm() > 2 * BELOW
    assert after.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(after, before)


def test_a_threshold_that_is_never_reached_changes_no_bit(corpus):
    unclipped = torch.stack(step_gradients(corpus, None))
    clipped = torch.stack(step_gradients(corpus, ABOVE))
    norms = unclipped.norm(dim=1)
    assert len(norms) > 2
    assert norms.max() < ABOVE
    assert clipped.equal(unclipped)


NUMBER = 0.01
"""The largest number of a gradient that is clipped by its value."""


def test_each_number_is_clipped_by_its_value(corpus):
    # The first steps, because later ones start from other weights.
    before = step_gradients(corpus, None)[0]
    after = step_gradients(corpus, None, NUMBER)[0]
    sizes = before.abs()
    assert sizes.min() < NUMBER < sizes.max()
    assert after.equal(before.clamp(-NUMBER, NUMBER))


def test_numbers_are_clipped_before_the_norm(corpus):
    numbers = step_gradients(corpus, None, NUMBER)[0]
    both = step_gradients(corpus, BELOW, NUMBER)[0]
    assert both.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(both, numbers)


@pytest.mark.parametrize("before", [0.0, 0.1])
def test_a_training_that_goes_on_from_a_dump_follows_its_own_recipe(corpus, before):
    """As PBT needs it: another weight decay gives other groups, in another order."""
    donor = member(corpus, recipe=Recipe(optimiser="adamw", weight_decay=before))
    next(fit(donor, corpus, 1))
    recipe = Recipe(optimiser="adamw", weight_decay=0.5, beta2=0.9, lr=0.05)
    training = member(corpus, recipe=recipe)
    training.load(donor.dump())
    settings = set()
    for group in training.optimiser.param_groups:
        settings.add((group["weight_decay"],) + group["betas"])
    # Some weights have no decay.
    assert settings == {(0.5, 0.9, 0.9), (0.0, 0.9, 0.9)}
    assert_same_weights(first_moments(training), first_moments(donor))
    next(fit(training, corpus, 2))
    assert training.optimiser.param_groups[0]["lr"] == 0.05


def first_moments(training: Training) -> dict[str, Tensor]:
    state = training.optimiser.state
    return {name: state[weight]["exp_avg"] for name, weight in training.parameters.items()}
