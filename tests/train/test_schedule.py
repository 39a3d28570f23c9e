"""Learning rate schedules: their values, their length, and what is comparable."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.config import from_dict, to_dict
from lmzoo.base.errors import UserError
from lmzoo.train.recipe import Recipe, Schedule
from lmzoo.train.trainer import fit
from tests.train.members import member
from tests.user_errors import raises_user_error

FALLING = (Schedule.LINEAR, Schedule.COSINE, Schedule.WSD)
SCHEDULED = st.builds(
    Recipe,
    lr=st.floats(1e-4, 1.0),
    warmup=st.integers(0, 9),
    schedule=st.sampled_from(FALLING),
    schedule_epochs=st.integers(1, 9),
    final_lr=st.floats(0, 1),
)


STEPS = 10
"""Steps of an epoch."""


def rates_of(recipe, epochs):
    steps = range(1, STEPS * epochs + 1)
    return [recipe.learning_rate(step, STEPS) for step in steps]


@given(SCHEDULED)
def test_the_rate_rises_to_lr_and_then_falls(recipe):
    rates = rates_of(recipe, recipe.schedule_epochs + 2)
    # Without warmup, the first step has the whole rate.
    highest = max(recipe.warmup - 1, 0)
    falling = rates[highest:]
    assert min(rates) >= 0
    assert max(rates) <= recipe.lr * (1 + 1e-12)
    assert falling == sorted(falling, reverse=True)
    if recipe.warmup:
        assert rates[highest] == recipe.lr


@given(SCHEDULED)
def test_the_rate_stays_at_its_final_share(recipe):
    rates = rates_of(recipe, recipe.schedule_epochs + 2)
    last = STEPS * recipe.schedule_epochs
    # Also after the end of the schedule.
    expected = pytest.approx(recipe.lr * recipe.final_lr, abs=1e-12)
    for rate in rates[last - 1 :]:
        assert rate == expected


@pytest.mark.parametrize("schedule", [Schedule.LINEAR, Schedule.COSINE])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_the_rates_are_those_of_torch(schedule, final):
    weight = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=0.3)
    if schedule is Schedule.LINEAR:
        theirs = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, final, 40)
    else:
        theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 40, 0.3 * final)
    recipe = Recipe(lr=0.3, schedule=schedule, schedule_epochs=4, final_lr=final)
    for rate in rates_of(recipe, 4):
        # torch warns if the rate changes before the first step.
        optimiser.step()
        theirs.step()
        expected = optimiser.param_groups[0]["lr"]
        assert rate == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_wsd_keeps_the_rate_and_falls_linearly_at_the_end(final):
    schedule = {"schedule": "wsd", "schedule_epochs": 4, "final_lr": final}
    recipe = Recipe(lr=0.3, warmup=5, cooldown=0.4, **schedule)
    rates = rates_of(recipe, 4)
    # Of the 35 steps after the warmup, the last 40 % fall.
    assert rates[5:26] == [0.3] * 21
    fall = torch.linspace(0.3, 0.3 * final, 15, dtype=torch.float64)
    assert rates[25:] == pytest.approx(fall.tolist(), abs=1e-12)


def test_the_length_of_a_schedule_is_in_the_config():
    schedule = Recipe(schedule=Schedule.COSINE, final_lr=0.1)
    recipe = schedule.with_budget(7)
    fields = to_dict(recipe)
    assert from_dict(Recipe, fields) == recipe
    assert recipe.with_budget(5) == recipe, "the length is part of the run"


def test_a_constant_rate_has_no_length():
    assert Recipe().with_budget(7) == Recipe()


TOO_FEW = ("schedule_epochs=2: ", "set at least 3")


def test_a_budget_beyond_the_schedule_is_refused():
    recipe = Recipe(batch=16, schedule=Schedule.COSINE).with_budget(2)
    with raises_user_error(*TOO_FEW):
        recipe.with_budget(3)


def test_a_training_does_not_go_on_beyond_its_schedule(corpus):
    recipe = Recipe(batch=16, schedule=Schedule.COSINE).with_budget(2)
    training = member(corpus, recipe=recipe)
    list(fit(training, corpus, 2))
    with raises_user_error(*TOO_FEW):
        list(fit(training, corpus, 3))
    assert training.epoch == 2


def test_a_schedule_without_a_length_has_no_rate():
    recipe = Recipe(schedule=Schedule.LINEAR)
    with pytest.raises(UserError, match="has no length; set schedule_epochs"):
        recipe.learning_rate(1, 10)


@pytest.mark.parametrize("shift", [0, -1])
def test_resuming_needs_the_right_number_of_steps(corpus, shift):
    """A wrong step count gives other weights, so a comparison of weights sees it."""
    recipe = Recipe(batch=16, warmup=2, schedule=Schedule.LINEAR).with_budget(3)
    whole = member(corpus, recipe=recipe)
    first = member(corpus, recipe=recipe)
    second = member(corpus, recipe=recipe)
    list(fit(whole, corpus, 3))
    list(fit(first, corpus, 1))
    second.load(first.dump())
    # A step too few is one step earlier in the schedule.
    second.steps += shift
    list(fit(second, corpus, 3))
    weights = list(second.model.parameters())
    expected = list(whole.model.parameters())
    equal = all(map(torch.equal, weights, expected))
    assert equal == (shift == 0)


@pytest.mark.parametrize("fields", [{"schedule_epochs": 3}, {"final_lr": 0.1}], ids=str)
def test_a_constant_rate_has_no_end(fields):
    with pytest.raises(UserError, match="set schedule to linear, cosine or wsd"):
        from_dict(Recipe, fields)


def test_a_warmup_as_long_as_the_schedule_is_refused():
    recipe = Recipe(warmup=20, schedule=Schedule.LINEAR, schedule_epochs=2)
    with pytest.raises(UserError, match="warmup=20 steps are no less than the schedule"):
        recipe.learning_rate(21, 10)
