"""Settings, prunes and best settings do not depend on timing, deaths and restarts."""

import dataclasses
import json
import random

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
    fields = {"search": SEARCH, "samples": 9, "epochs": 8, "reduction": 2, "parallel": 2}
    return dataclasses.replace(study, points=study.points[:2], **fields)


def settings_in(path) -> dict:
    lines = (path / SETTINGS).read_text().splitlines()
    return {(line["point"], line["index"]): line["setting"] for line in map(json.loads, lines)}


def decided(path) -> tuple:
    return settings_in(path), outcome(path), read_json(path / STUDY)["chosen"]


class EveryOther:
    """A user's pruner, which also shows what a pruner may see."""

    def prunes(self, epoch, curve, earlier):
        earlier = list(earlier)
        assert max(curve) == epoch
        assert all(max(other, default=0) <= epoch for other in earlier)
        return epoch == 2 and len(earlier) % 2 == 1


CHOICES = [
    *({"sampler": name} for name in SAMPLERS),
    *({"pruner": name} for name in PRUNERS),
    {"sampler": optuna.samplers.RandomSampler(seed=3), "pruner": EveryOther()},
    {"parallel": 1},
    {"parallel": 5},
    {"seeds": 3, "max_seeds": 30},
]


def name_of(choice: dict) -> str:
    names = (x if isinstance(x, str) else type(x).__name__ for x in choice.values())
    return "-".join(names)


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(choice, id=name_of(choice), marks=[] if fast else [pytest.mark.slow])
        for choice in CHOICES
        for fast in [name_of(choice) in ("tpe", "asha", "RandomSampler-EveryOther", "5", "3-30")]
    ],
)
def test_timing_deaths_and_restarts_change_no_decision(choice, searched, fake_sweep, tmp_path):
    study = dataclasses.replace(searched, **choice)
    assert fake_sweep(study, path=tmp_path / "undisturbed", slots=1)
    path = tmp_path / "disturbed"
    for life in range(500):  # each dies after 40 epochs
        if fake_sweep(study, path=path, slots=8, seed=life, steps=40, deaths=0.2):
            break
    assert decided(path) == decided(tmp_path / "undisturbed")


def test_a_larger_budget_does_not_change_the_settings_in_the_store(searched, fake_sweep, tmp_path):
    assert fake_sweep(searched, path=tmp_path, slots=3)
    before = settings_in(tmp_path)
    longer = dataclasses.replace(searched, epochs=12, samples=11, sampler="random")
    assert fake_sweep(longer, path=tmp_path, slots=2)
    after = settings_in(tmp_path)
    assert {key: after[key] for key in before} == before
    assert len(after) == len(before) + 2 * len(searched.points)


ROUNDING = 1e-6
"""What a loss may differ by, relative: docs/how/sweep.md."""
LOSSES = {
    "different": lambda loss, epoch: loss,
    "often equal": lambda loss, epoch: round(loss, 1),
    "all equal": lambda loss, epoch: 2 + 1 / epoch,
}


@pytest.mark.parametrize("kind", LOSSES)
def test_the_rounding_of_losses_changes_no_decision(
    kind, searched, fake_sweep, tmp_path, monkeypatch
):
    """Every recorded loss is moved by up to 1e-6: settings, prunes and choices are the same."""
    study = searched
    inner = fake_runs.fake_loss
    found = []
    for attempt in range(2):
        generator = random.Random(attempt)

        size = ROUNDING if attempt else 0.0

        def moved(name, rate, epoch, generator=generator, size=size):
            loss = inner(name, rate, epoch)
            if loss is None:
                return None
            return LOSSES[kind](loss, epoch) * (1 + size * generator.uniform(-1, 1))

        monkeypatch.setattr(fake_runs, "fake_loss", moved)
        path = tmp_path / str(attempt)
        assert fake_sweep(study, path=path, slots=4)
        ends = {run: records[-1].get("status") for run, records in outcome(path).items()}
        chosen = {point: own["setting"] for point, own in read_json(path / STUDY)["chosen"].items()}
        found.append((settings_in(path), ends, chosen))
    assert found[1] == found[0]
