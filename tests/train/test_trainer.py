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
    """Return the records of epochs without what differs from run to run."""
    records = []
    for record in epochs:
        records.append({name: value for name, value in record.items() if name not in TIMINGS})
    return records


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
    first = _records(fit(Training(model_of(corpus), SMALL, 0), corpus, 1))
    second = _records(fit(Training(model_of(corpus), SMALL, 1), corpus, 1))
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
    losses = []
    weights = []
    for record in fit(training, corpus, 8):
        losses.append(record["valid_token"])
        weights.append({k: v.clone() for k, v in training.model.state_dict().items()})
    best = losses.index(min(losses))
    assert training.best_epoch == best + 1
    for name, value in training.best_weights.items():
        assert torch.equal(value, weights[best][name])


@pytest.fixture
def trained(corpus) -> Training:
    """Return a training of one epoch, whose weights are the best ones."""
    training = Training(model_of(corpus), Recipe(batch=16, lr=0.03), seed=0)
    next(fit(training, corpus, 1))
    assert training.best_epoch == 1
    return training


def saved(state) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def test_best_weights_are_saved_once_if_they_are_the_current_ones(trained):
    state = trained.dump()
    copied = state["best"] | {"weights": trained.best_weights}
    once = saved(state)
    twice = saved(state | {"best": copied})
    # A second copy of the weights is more than a tenth of the file.
    assert len(once.getvalue()) < 0.9 * len(twice.getvalue())


def test_best_weights_are_kept_after_worse_epochs(trained, corpus):
    expected = {name: value.clone() for name, value in trained.best_weights.items()}
    # With this rate, the next epoch is worse.
    resumed = Training(model_of(corpus), Recipe(batch=16, lr=3.0), seed=0)
    resumed.load(torch.load(saved(trained.dump()), weights_only=True))
    worse = next(fit(resumed, corpus, 2))
    assert worse["valid_token"] > resumed.best_loss
    later = torch.load(saved(resumed.dump()), weights_only=True)
    for name, value in expected.items():
        assert resumed.best_weights[name].equal(value)
        assert later["best"]["weights"][name].equal(value)


def _before_steps(training, action):
    """Call `action` before every optimiser step."""
    step = training.optimiser.step
    training.optimiser.step = lambda: (action(), step())


@pytest.fixture
def published() -> Recipe:
    return dataclasses.replace(RECIPES["published"], batch=30)


def _gradients(training):
    return [parameter.grad.clone() for parameter in training.model.parameters()]


def test_published_gradients_accumulate_within_an_epoch(corpus, published):
    """With constant weights, the gradient of the second step is g_1 + g_2."""
    training = Training(model_of(corpus), published, seed=0)
    accumulated = []

    def record():
        accumulated.append(_gradients(training))
        training.optimiser.param_groups[0]["lr"] = 0.0  # constant weights

    _before_steps(training, record)
    list(fit(training, corpus, 2))
    assert len(accumulated) == 4
    by_step = dataclasses.replace(published, accumulate="step")
    alone = Training(model_of(corpus), by_step, seed=0)
    singles = []
    # The step is left out, so that the weights are constant.
    alone.optimiser.step = lambda: singles.append(_gradients(alone))
    list(fit(alone, corpus, 1))
    for total, first, second in zip(accumulated[1], *singles, strict=True):
        torch.testing.assert_close(total, first + second)


def test_losses_equal_their_definitions(model, corpus):
    losses = evaluate(model, corpus.test, batch=7)
    with torch.no_grad():
        scores = model.log_prob(corpus.test.tokens, corpus.test.lengths)
    nll = -scores.double().sum(1)
    n = (corpus.test.lengths - 1).double()
    per_token = float(nll.sum() / n.sum())
    per_sentence = float((nll / n).mean())
    assert losses.token == pytest.approx(per_token, abs=1e-6)
    assert losses.sentence == pytest.approx(per_sentence, abs=1e-6)
    assert losses.tokens == corpus.test.num_scored
    torch.testing.assert_close(losses.nll, nll, atol=1e-5, rtol=0)


BELOW = 0.05
ABOVE = 1e3
"""A threshold below the norm of every gradient in these tests, and one above."""


def new_training(corpus: Corpus, clip: float | None, value: float | None = None) -> Training:
    return member(corpus, recipe=dataclasses.replace(RECIPE, clip=clip, clip_value=value))


def step_gradients(corpus: Corpus, clip: float | None, value: float | None = None) -> list[Tensor]:
    """Return the gradient that the optimiser receives in each step of an epoch."""
    training = new_training(corpus, clip, value)
    recorded = []

    def record():
        gradients = [p.grad.flatten() for p in training.model.parameters() if p.grad is not None]
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
    assert before.norm() > 2 * BELOW
    assert after.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(after, before)


def test_a_threshold_that_is_never_reached_changes_no_bit(corpus):
    unclipped = step_gradients(corpus, None)
    clipped = step_gradients(corpus, ABOVE)
    assert len(unclipped) > 2
    assert max(gradient.norm() for gradient in unclipped) < ABOVE
    for a, b in zip(unclipped, clipped, strict=True):
        assert a.equal(b)


NUMBER = 0.01
"""The largest number of a gradient that is clipped by its value."""


def test_each_number_is_clipped_by_its_value(corpus):
    """In the first step, because the later ones start from other weights."""
    before = step_gradients(corpus, None)[0]
    after = step_gradients(corpus, None, NUMBER)[0]
    assert (before.abs() > NUMBER).any()
    assert (before.abs() < NUMBER).any()
    assert after.equal(before.clamp(-NUMBER, NUMBER))


def test_numbers_are_clipped_before_the_norm(corpus):
    numbers = step_gradients(corpus, None, NUMBER)[0]
    both = step_gradients(corpus, BELOW, NUMBER)[0]
    assert both.norm().item() == pytest.approx(BELOW, rel=1e-3)
    assert_same_direction(both, numbers)


@pytest.mark.parametrize("before", [0.0, 0.1])
def test_a_training_that_goes_on_from_a_dump_follows_its_own_recipe(corpus, before):
    """As PBT needs it: another weight decay gives other groups, in another order."""
    donor = Training(model_of(corpus), Recipe(optimiser="adamw", weight_decay=before), seed=0)
    next(fit(donor, corpus, 1))
    recipe = Recipe(optimiser="adamw", weight_decay=0.5, beta2=0.9, lr=0.05)
    training = Training(model_of(corpus), recipe, seed=0)
    training.load(donor.dump())
    settings = set()
    for group in training.optimiser.param_groups:
        settings.add((group["weight_decay"], *group["betas"]))
    assert settings == {(0.5, 0.9, 0.9), (0.0, 0.9, 0.9)}
    for name, parameter in training.parameters.items():
        mean = training.optimiser.state[parameter]["exp_avg"]
        expected = donor.optimiser.state[donor.parameters[name]]["exp_avg"]
        assert mean.equal(expected), name
    next(fit(training, corpus, 2))
    assert training.optimiser.param_groups[0]["lr"] == 0.05
