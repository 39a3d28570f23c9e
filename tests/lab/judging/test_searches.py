"""Trials of Ray Tune: those of a search are no seeds."""

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.verdicts import judge

HOW = {"by": "config.point", "metric": "loss", "higher_is_better": False}


RATE = "config.recipe.lr"


def trial(point, rate, seed):
    """Return the result of a trial; cut is worse by 0.5."""
    loss = 3 + 0.01 * seed + rate
    if point == "cut":
        loss += 0.5
    return {
        "trial_id": f"{point} {rate} {seed}",
        "config.point": point,
        RATE: rate,
        "config.seed": seed,
        "loss": loss,
    }


@pytest.fixture
def search():
    """Four rates of each point."""
    found = []
    for rate in (0.1, 0.2, 0.3, 0.4):
        # One seed at each rate.
        found += [trial("whole", rate, 0), trial("cut", rate, 0)]
    return found


def seeds_of(rate):
    found = []
    for seed in (1, 2, 3):
        found += [trial("whole", rate, seed), trial("cut", rate, seed)]
    return found


@pytest.fixture
def seeds():
    return seeds_of(0.01)


def test_trials_that_differ_in_a_setting_are_tuning_and_have_no_verdict(search):
    with pytest.raises(UserError, match="8 trials are tuning, not seeds") as no:
        judge(search, **HOW)
    call = "lmzoo.tune.confirm(RESULTS, train, by=['point'], metric='loss', mode='min')"
    assert call in str(no.value)


def test_only_the_seeds_of_one_setting_count(search, seeds):
    found = judge(search + seeds, **HOW)
    assert found["seeds"].to_list() == [3, 3]
    assert found["verdict"].to_list() == [None, "worse"]
    assert found["missing"].to_list() == [0, 0]
    assert found.equals(judge(seeds, **HOW))


def test_trials_of_a_search_are_said(search, seeds):
    text = str(judge(search + seeds, **HOW))
    assert "8 trials are tuning" in text
    assert "14 rows read: 6 counted, 8 tuning" in text


def test_trials_of_a_result_grid_have_settings_too(search):
    grid = []
    for row in search:
        grid.append({name.replace("config.", "config/"): value for name, value in row.items()})
    with pytest.raises(UserError, match=r"config/recipe\.lr"):
        judge(grid, **HOW | {"by": "config/point"})


def test_seeds_of_several_settings_are_a_question(seeds):
    with pytest.raises(UserError, match=r"several settings have seeds; add --by config\.recipe"):
        judge(seeds + seeds_of(0.2), **HOW)


def test_settings_may_be_points(seeds):
    points = {"by": ["config.point", RATE]}
    found = judge(seeds + seeds_of(0.2), **HOW | points)
    assert len(found) == 4


def test_results_of_others_have_no_trials(seeds):
    others = seeds_of(0.2)
    for row in others:
        # Other seeds than those of the first rate.
        row["config.seed"] += 3
    results = seeds + others
    for row in results:
        del row["trial_id"]
    assert "tuning" not in str(judge(results, **HOW, paired=False))


def test_the_last_config_of_a_trial_is_its_setting(seeds):
    """PBT changes the config of a trial."""
    first = []
    for number, row in enumerate(seeds):
        first.append(row | {"step": 1, RATE: 0.1 * number})
    last = [row | {"step": 2} for row in seeds]
    found = judge(first + last, **HOW, step="step")
    assert found["seeds"].to_list() == [3, 3]
    assert "tuning" not in str(found)
