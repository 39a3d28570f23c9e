"""Points are tuned together: one start design, one rung, one fit, which the sampler knows."""

import collections
import dataclasses
import math
from typing import ClassVar

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.lab.statistics.responses import fit_responses
from lmzoo.lab.store.records import CONFIG, read_json
from lmzoo.lab.study.designs import CELLS, beyond, coordinates, edges, start_design
from lmzoo.lab.study.search import KEEP, rungs
from lmzoo.lab.study.tuning import WITH_CHOICES
from tests.lab.sweep.local_sweep import outcome

SPACE = {"recipe.lr": FloatRange(1e-3, 2e-1, log=True)}
DEFAULT = {"recipe.lr": 1e-2}


@pytest.fixture
def tuned(study):
    """Four points with the start design, whose highest rate diverges, and a rung at epoch 2."""
    return dataclasses.replace(study, search=SPACE, samples=CELLS, epochs=12)


def tune_runs(path, study) -> list[list[list[dict]]]:
    """Return the records of the tune runs: points, settings in the order of the design."""
    design = start_design(SPACE, DEFAULT, study.samples, study.seed)
    records = outcome(path)
    configs = [read_json(path / run / CONFIG) for run in records]
    configs = [config for config in configs if config["stage"] == "tune"]
    counts = collections.Counter(config["seed"] for config in configs)
    known = collections.defaultdict(dict)
    for config in configs:
        if counts[config["seed"]] > 2:  # not measured again
            of_point = known[config["point"]["label"]]
            of_point[str(config["setting"])] = records[config["run"]]
    runs = []
    for point in study.points:
        if point.label in known:
            runs.append([known[point.label][str(setting)] for setting in design])
    return runs


def losses(points, last: int) -> np.ndarray:
    """Return the lowest loss of each run up to an epoch; infinity if it diverged."""

    def loss(records) -> float:
        epochs = [record for record in records if record["event"] == "epoch"]
        curve = [record["valid_token"] for record in epochs if record["epoch"] <= last]
        if None in curve:
            return math.inf
        return min(curve)

    return np.array([[loss(records) for records in settings] for settings in points])


@pytest.mark.parametrize("count", [5, 8])
def test_every_value_of_a_choice_is_tried_before_one_is_tried_again(
    tuned, fake_sweep, tmp_path, count
):
    rates = tuple(1e-3 * 2**n for n in range(count))
    choices = dataclasses.replace(tuned, search={"recipe.lr": Choice(rates)}, samples=count)
    assert fake_sweep(choices, slots=2)
    tried = collections.defaultdict(set)
    for config in (read_json(tmp_path / run / CONFIG) for run in outcome(tmp_path)):
        if config["stage"] == "tune":
            tried[config["point"]["label"]].add(config["setting"]["recipe.lr"])
    assert [*tried.values()] == [set(rates)] * 3


def test_the_rung_keeps_what_a_point_favours_and_what_all_points_do(tuned, fake_sweep, tmp_path):
    assert fake_sweep(tuned, slots=3)
    points = tune_runs(tmp_path, tuned)
    rung = rungs(tuned)[0]
    design = start_design(SPACE, DEFAULT, tuned.samples, tuned.seed)
    at_rung = losses(points, rung)
    order = fit_responses(at_rung, coordinates(SPACE, design)).order
    assert len(points) == 3, "the fourth is the same function"
    for settings, of_point, best in zip(points, at_rung, order, strict=True):
        by_point = np.argsort(of_point)[:2].tolist()
        by_all = best[: int(KEEP * len(design))].tolist()
        favoured = {index for index in by_point + by_all if np.isfinite(of_point[index])}
        for index, records in enumerate(settings):
            (end,) = (record for record in records if record["event"] == "end")
            assert (end["status"] == "finished") == (index in favoured)
            assert end["status"] != "pruned" or end["epoch"] == rung


class Listening(optuna.samplers.RandomSampler):
    """A random sampler that lists the losses it was given before each suggestion."""

    known: ClassVar[list[list[float]]] = []
    """Of all points, which copy the sampler."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        complete = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
        self.known.append([trial.values[0] for trial in complete])
        return super().sample_independent(study, trial, param_name, param_distribution)


def test_the_sampler_is_asked_by_default_with_the_losses_of_the_fit(tuned, fake_sweep):
    Listening.known.clear()
    assert fake_sweep(dataclasses.replace(tuned, sampler=Listening(seed=0)), slots=3)
    assert all(len(values) >= CELLS - 2 for values in Listening.known)
    assert 0 < len(Listening.known) <= 3, "where no setting beyond the best one comes first"


class Low(optuna.samplers.RandomSampler):
    """A sampler that suggests a bad setting."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        return param_distribution.low


def test_the_fit_knows_every_run_that_was_stopped_early(tuned, fake_sweep, monkeypatch):
    """Also those whose settings the sampler suggested, far from the best ones."""
    known = []

    def fit(losses, settings, **given):
        known.append((losses, given.get("early")))
        assert given.get("elsewhere") is None
        return fit_responses(losses, settings, **given)

    monkeypatch.setattr("lmzoo.lab.study.tuning.fit_responses", fit)
    assert fake_sweep(dataclasses.replace(tuned, sampler=Low(seed=0)), slots=3)
    losses, early = known[-1]
    stopped = np.isnan(losses[:, CELLS - 1])
    assert stopped.any(), "some suggestion was stopped early"
    assert np.isfinite(early[stopped, CELLS - 1]).all()


@pytest.mark.parametrize(
    ("second", "shape"),
    [
        ({"recipe.batch": Choice((16, 32, 64))}, (WITH_CHOICES, 4)),
        ({"recipe.clip": FloatRange(0.1, 10, log=True)}, (CELLS - 1, 2)),
    ],
)
def test_with_two_fields_the_best_may_be_anywhere_in_the_space(
    second, shape, tuned, fake_sweep, monkeypatch
):
    seen = []

    def fit(losses, settings, **given):
        seen.append(given.get("elsewhere"))
        return fit_responses(losses, settings, **given)

    monkeypatch.setattr("lmzoo.lab.study.tuning.fit_responses", fit)
    assert fake_sweep(dataclasses.replace(tuned, search={**SPACE, **second}), slots=3)
    last = seen[-1]
    assert last.shape == shape
    if "recipe.batch" in second:
        options = last[:, 1:]
        assert (options.sum(1) == 1).all()
        assert {*options.argmax(1)} == {0, 1, 2}


RANGES = st.one_of(
    st.builds(FloatRange, st.floats(1e-5, 1e-2), st.floats(0.1, 10), st.booleans()),
    st.builds(IntRange, st.integers(1, 8), st.integers(32, 256), st.booleans()),
    st.just(Choice(("default", "orthogonal", "normal"))),
)
SPACES = st.dictionaries(st.sampled_from("abc"), RANGES, min_size=1)


def first(bounds):
    if isinstance(bounds, Choice):
        return bounds.values[0]
    return bounds.low


def is_inside(value, bounds):
    if isinstance(bounds, Choice):
        return value in bounds.values
    return bounds.low <= value <= bounds.high


@given(SPACES, st.integers(1, 60), st.integers(0, 5))
def test_settings_are_different_and_inside_and_the_default_is_first(space, samples, seed):
    default = {path: first(bounds) for path, bounds in space.items()}
    design = start_design(space, default, samples, seed)
    assert design[0] == default
    assert 1 <= len(design) <= max(1, min(samples, max(CELLS, samples // 4)) - 1)
    for index, setting in enumerate(design):
        assert setting not in design[:index]
        assert all(is_inside(value, space[path]) for path, value in setting.items())
    assert design == start_design(space, default, samples, seed)
    x = coordinates(space, design)
    assert (np.abs(x) <= 1 + 1e-9).all()
    distance = ((x - x[0]) ** 2).sum(1)
    assert (np.diff(distance) >= -1e-9).all()


@given(SPACES, st.integers(CELLS, 60))
def test_fewer_samples_leave_out_the_last_settings(space, seed):
    default = {path: first(bounds) for path, bounds in space.items()}
    design = start_design(space, default, CELLS, seed)
    for samples in range(1, CELLS):
        assert start_design(space, default, samples, seed) == design[: max(1, samples - 1)]


def test_one_range_is_divided_into_equal_cells_of_which_the_last_is_left_out():
    space = {"lr": FloatRange(1e-4, 1e1, log=True)}
    outside = start_design(space, {"lr": 50.0}, 5, 0)
    assert outside == start_design(space, {"lr": "50"}, 5, 0)
    rates = [setting["lr"] for setting in outside]
    np.testing.assert_allclose(rates, 10.0 ** np.arange(-3.5, 0), rtol=1e-3)
    replaced = start_design(space, {"lr": 0.02}, 5, 0)
    assert sorted(setting["lr"] for setting in replaced)[2] == 0.02


@given(st.permutations([0.001, 0.01, 0.1]), st.integers(0, 2))
def test_a_setting_beyond_is_asked_for_at_the_first_and_last_tried(rates, which):
    space = {"lr": FloatRange(1e-4, 1.0, log=True), "norm": Choice(("a", "b"))}
    tried = [{"lr": rate, "norm": "a"} for rate in rates]
    best = tried[which]
    new = beyond(space, tried, best)
    if best["lr"] == 0.01:
        assert new is None
        assert edges(space, tried, best) == []
        return
    assert edges(space, tried, best) == ["lr"]
    bound = 1.0
    if best["lr"] == 0.001:
        bound = 1e-4
    assert new == {"lr": bound, "norm": "a"}
    assert beyond(space, [*tried, new], new) is None, "the range ends there"
    assert edges(space, [*tried, new], new) == ["lr"], "and the mark says so"


def test_several_ranges_are_covered():
    """Each half of each range has at least two settings; independent ones often fail."""
    space = {name: FloatRange(0.0, 1.0) for name in "abc"}
    for seed in range(20):
        design = start_design(space, dict.fromkeys("abc", 5.0), 32, seed)
        x = coordinates(space, design)
        assert len(design) == 7
        assert (np.minimum((x < 0).sum(0), (x > 0).sum(0)) >= 2).all()
