"""Learning rate schedules: their values, their length, and what is comparable."""

import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo import zoo
from lmzoo.config import from_dict, to_dict
from lmzoo.errors import UserError
from lmzoo.train.recipe import Recipe, Schedule
from lmzoo.train.trainer import Training, fit

FALLING = (Schedule.LINEAR, Schedule.COSINE)
SCHEDULED = st.builds(
    Recipe,
    lr=st.floats(1e-4, 1.0),
    warmup=st.integers(0, 9),
    schedule=st.sampled_from(FALLING),
    schedule_epochs=st.integers(1, 9),
    final_lr=st.floats(0, 1),
)


@given(SCHEDULED)
def test_the_rate_rises_to_lr_and_falls_to_its_final_share(recipe):
    steps = 10
    rates = [
        recipe.learning_rate(i + 1, steps) for i in range(steps * (recipe.schedule_epochs + 2))
    ]
    assert all(0 <= rate <= recipe.lr * (1 + 1e-12) for rate in rates)
    if recipe.warmup:
        assert rates[recipe.warmup - 1] == recipe.lr
    falling = rates[max(recipe.warmup - 1, 0) :]
    assert falling == sorted(falling, reverse=True)
    end = rates[steps * recipe.schedule_epochs - 1 :]
    assert end == pytest.approx([recipe.lr * recipe.final_lr] * len(end), abs=1e-12)


@pytest.mark.parametrize("schedule", FALLING)
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_the_rates_are_those_of_torch(schedule, final):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    theirs = {
        Schedule.LINEAR: lambda: torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, final, 40),
        Schedule.COSINE: lambda: torch.optim.lr_scheduler.CosineAnnealingLR(
            optimiser, 40, 0.3 * final
        ),
    }[schedule]()
    recipe = Recipe(lr=0.3, schedule=schedule, schedule_epochs=4, final_lr=final)
    for step in range(1, 41):
        optimiser.step()
        theirs.step()
        expected = optimiser.param_groups[0]["lr"]
        assert recipe.learning_rate(step, 10) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("schedule", FALLING)
def test_a_training_follows_its_schedule_and_resumes_in_it(schedule, corpus):
    recipe = Recipe(batch=16, warmup=3, schedule=schedule).with_budget(4)

    def new():
        config = zoo.config("DLM46", width=4, emission={"components": 3})
        return Training(zoo.build(config, corpus.task, 0), recipe, 0)

    whole, first, second = new(), new(), new()
    expected = [record["valid_token"] for record in fit(whole, corpus, 4)]
    list(fit(first, corpus, 2))
    second.load(first.dump())
    assert [record["valid_token"] for record in fit(second, corpus, 4)] == expected[2:]
    assert whole.optimiser is not None
    assert whole.optimiser.param_groups[0]["lr"] == 0
    constant = Training(new().model, dataclasses.replace(recipe, schedule="constant",
                                                         schedule_epochs=0), 0)  # fmt: skip
    assert [record["valid_token"] for record in fit(constant, corpus, 4)][1:] != expected[1:]


def test_a_constant_rate_leaves_no_trace_in_the_config():
    names = {"schedule", "schedule_epochs", "final_lr"}
    assert not names & set(to_dict(Recipe()))
    assert Recipe().with_budget(7) == Recipe()
    recipe = Recipe(schedule=Schedule.COSINE, final_lr=0.1).with_budget(7)
    assert names <= set(json.loads(json.dumps(to_dict(recipe))))
    assert from_dict(Recipe, to_dict(recipe)) == recipe
    assert recipe.with_budget(9) == recipe, "the length is part of the run"


@pytest.mark.parametrize("fields", [{"schedule_epochs": 3}, {"final_lr": 0.1}])
def test_a_constant_rate_has_no_end(fields):
    with pytest.raises(UserError, match="set schedule to linear or cosine"):
        from_dict(Recipe, fields)


def test_a_warmup_as_long_as_the_schedule_is_refused():
    recipe = Recipe(warmup=20, schedule=Schedule.LINEAR, schedule_epochs=2)
    with pytest.raises(UserError, match="warmup=20 steps are no less than the schedule"):
        recipe.learning_rate(21, 10)
