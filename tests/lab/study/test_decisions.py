"""Settings, prunes and best settings do not depend on timing, deaths and restarts."""

import json
import random
from dataclasses import replace

import optuna
import pytest

from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.lab.store.records import SETTINGS, STUDY, read_json
from lmzoo.lab.study.search import PRUNERS, SAMPLERS
from tests.lab.sweep import fake_runs
from tests.lab.sweep.local_sweep import outcome

SEARCH = {"recipe.lr": FloatRange(1e-4, 1e-1, log=True), "recipe.batch": IntRange(8, 32)}


@pytest.fixture
def searched(study):
    """Two points with nine settings of two fields, and three rungs."""
    return replace(
        study,
        points=study.points[:2],
        search=SEARCH,
        samples=9,
        epochs=8,
        reduction=2,
        parallel=2,
    )


def settings_in(path) -> dict:
    settings = {}
    for text in (path / SETTINGS).read_text().splitlines():
        line = json.loads(text)
        settings[line["point"], line["index"]] = line["setting"]
    return settings


def chosen_in(path) -> dict:
    return read_json(path / STUDY)["chosen"]


def decided(path) -> tuple:
    return settings_in(path), outcome(path), chosen_in(path)


class EveryOther:
    """A user's pruner, which also shows what a pruner may see."""

    def prunes(self, epoch, curve, earlier):
        count = 0
        for other in earlier:
            count += 1
            assert max(other, default=0) <= epoch
        assert max(curve) == epoch
        if epoch != 2:
            return False
        return count % 2 == 1


OF_A_USER = {"sampler": optuna.samplers.RandomSampler(seed=3), "pruner": EveryOther()}
CHOICES = {
    "of a user": OF_A_USER,
    "one at a time": {"parallel": 1},
    "five at a time": {"parallel": 5},
    "until decided": {"seeds": 3, "max_seeds": 30},
}
for name in SAMPLERS:
    CHOICES[name] = {"sampler": name}
for name in PRUNERS:
    CHOICES[name] = {"pruner": name}
FAST = ["tpe", "asha", "of a user", "five at a time", "until decided"]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in sorted(CHOICES.keys() - FAST)]


@pytest.mark.parametrize("choice", FAST + SLOW)
def test_timing_deaths_and_restarts_change_no_decision(choice, searched, fake_sweep, tmp_path):
    study = replace(searched, **CHOICES[choice])
    undisturbed = tmp_path / "undisturbed"
    assert fake_sweep(study, path=undisturbed, slots=1)
    path = tmp_path / "disturbed"
    ended = False
    life = 0
    while not ended:
        # Each life ends after 40 epochs.
        ended = fake_sweep(study, path=path, slots=8, seed=life, steps=40, deaths=0.2)
        life += 1
        assert life < 500
    assert decided(path) == decided(undisturbed)


def test_a_larger_budget_does_not_change_the_settings_in_the_store(searched, fake_sweep, tmp_path):
    assert fake_sweep(searched, path=tmp_path, slots=3)
    before = settings_in(tmp_path)
    longer = replace(searched, epochs=12, samples=11, sampler="random")
    assert fake_sweep(longer, path=tmp_path, slots=2)
    after = settings_in(tmp_path)
    assert before.items() <= after.items()
    added = len(after) - len(before)
    # Two more samples of each point.
    assert added == 2 * len(searched.points)


ROUNDING = 1e-6
"""What a loss may differ by, relative: docs/how/sweep.md."""
LOSSES = {
    "different": lambda loss, epoch: loss,
    "often equal": lambda loss, epoch: round(loss, 1),
    "all equal": lambda loss, epoch: 2 + 1 / epoch,
}


@pytest.fixture(params=LOSSES)
def decided_of(request, searched, fake_sweep, tmp_path, monkeypatch):
    """Return a function that moves every recorded loss by up to a relative size."""
    inner = fake_runs.fake_loss
    kind = LOSSES[request.param]

    def decided(size: float) -> tuple:
        generator = random.Random(1)

        def moved(name, rate, epoch):
            loss = inner(name, rate, epoch)
            if loss is None:
                return None
            change = size * generator.uniform(-1, 1)
            return kind(loss, epoch) * (1 + change)

        monkeypatch.setattr(fake_runs, "fake_loss", moved)
        path = tmp_path / str(size)
        assert fake_sweep(searched, path=path, slots=4)
        return settings_in(path), ends_of(path), settings_chosen(path)

    return decided


def ends_of(path) -> dict:
    ends = {}
    for run, (end, *_) in outcome(path).items():
        ends[run] = end["status"]
    return ends


def settings_chosen(path) -> dict:
    settings = {}
    for point, chosen in chosen_in(path).items():
        settings[point] = chosen["setting"]
    return settings


def test_the_rounding_of_losses_changes_no_decision(decided_of):
    """Settings, prunes and choices are the same."""
    assert decided_of(ROUNDING) == decided_of(0.0)
