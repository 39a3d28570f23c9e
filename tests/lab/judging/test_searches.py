"""Trials of Ray Tune: those of a search are no seeds."""

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.verdicts import judge

HOW = {"by": "config.point", "metric": "loss", "higher_is_better": False}


def trials(*settings):
    """Return a row for each (point, rate, seed); cut is worse by 0.5."""
    return [
        {
            "trial_id": f"t{number}",
            "config.point": point,
            "config.recipe.lr": rate,
            "config.seed": seed,
            "loss": 3 + 0.5 * (point == "cut") + 0.01 * seed + rate,
        }
        for number, (point, rate, seed) in enumerate(settings)
    ]


SEARCH = [(point, 0.1 * k, 0) for point in ("whole", "cut") for k in range(1, 5)]
SEEDS = [(point, 0.01, seed) for point in ("whole", "cut") for seed in (1, 2, 3)]


def test_trials_that_differ_in_a_setting_are_tuning_and_have_no_verdict():
    with pytest.raises(UserError, match="8 trials are tuning, not seeds") as no:
        judge(trials(*SEARCH), **HOW)
    call = "lmzoo.tune.confirm(RESULTS, train, by=['point'], metric='loss', mode='min')"
    assert call in str(no.value)


def test_only_the_seeds_of_one_setting_count():
    found = judge(trials(*SEARCH, *SEEDS), **HOW)
    assert found["seeds"].to_list() == [3, 3]
    assert found["verdict"].to_list() == [None, "worse"]
    assert found["missing"].to_list() == [0, 0]
    text = str(found)
    assert "8 trials are tuning" in text
    assert "14 rows read: 6 counted, 8 tuning" in text
    assert judge(trials(*SEEDS), **HOW).equals(found)
    grid = [{k.replace("config.", "config/"): v for k, v in row.items()} for row in trials(*SEARCH)]
    with pytest.raises(UserError, match=r"config/recipe\.lr"):  # of a ResultGrid
        judge(grid, **{**HOW, "by": "config/point"})


def test_seeds_of_several_settings_are_a_question():
    grid = trials(*SEEDS, *((point, 0.2, seed) for point, _, seed in SEEDS))
    with pytest.raises(UserError, match=r"several settings have seeds; add --by config\.recipe"):
        judge(grid, **HOW)
    named = judge(grid, **{**HOW, "by": ["config.point", "config.recipe.lr"]})
    assert len(named) == 4


def test_results_of_others_have_no_trials():
    rows = [{k: v for k, v in row.items() if k != "trial_id"} for row in trials(*SEEDS)]
    rows += [{**row, "config.recipe.lr": 0.2, "config.seed": 4 + n} for n, row in enumerate(rows)]
    assert "tuning" not in str(judge(rows, **HOW, paired=False))


def test_the_last_config_of_a_trial_is_its_setting():
    """PBT changes the config of a trial."""
    first = [
        {**row, "step": 1, "config.recipe.lr": 0.1 * n} for n, row in enumerate(trials(*SEEDS))
    ]
    last = [{**row, "step": 2} for row in trials(*SEEDS)]
    found = judge([*first, *last], **HOW, step="step")
    assert found["seeds"].to_list() == [3, 3]
    assert "tuning" not in str(found)
