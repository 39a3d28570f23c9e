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
    records = outcome(path)
    configs = tune_configs(path)
    counts = collections.Counter(config["seed"] for config in configs)
    known = collections.defaultdict(dict)
    for config in configs:
        if counts[config["seed"]] > 2:  # not measured again
            of_point = known[config["point"]["label"]]
            of_point[str(config["setting"])] = records[config["run"]]
    runs = []
    for point in study.points:
        if point.label in known:
            runs.append([known[point.label][str(setting)] for setting in design_of(study)])
    return runs


def design_of(study):
    return start_design(SPACE, DEFAULT, study.samples, study.seed)


def tune_configs(path) -> list[dict]:
    configs = [read_json(path / run / CONFIG) for run in outcome(path)]
    return [config for config in configs if config["stage"] == "tune"]


def lowest(records, last: int) -> float:
    """Return the lowest loss of a run up to an epoch; infinity if it diverged."""
    curve = []
    for record in records:
        if record["event"] == "epoch" and record["epoch"] <= last:
            curve.append(record["valid_token"])
    if None in curve:
        return math.inf
    return min(curve)


@pytest.mark.parametrize("count", [5, 8])
def test_every_value_of_a_choice_is_tried_before_one_is_tried_again(
    tuned, fake_sweep, tmp_path, count
):
    rates = tuple(1e-3 * 2**n for n in range(count))
    choices = dataclasses.replace(tuned, search={"recipe.lr": Choice(rates)}, samples=count)
    assert fake_sweep(choices, slots=2)
    tried = collections.defaultdict(set)
    for config in tune_configs(tmp_path):
        tried[config["point"]["label"]].add(config["setting"]["recipe.lr"])
    assert [*tried.values()] == [set(rates)] * 3


def test_the_rung_keeps_what_a_point_favours_and_what_all_points_do(tuned, fake_sweep, tmp_path):
    assert fake_sweep(tuned, slots=3)
    points = tune_runs(tmp_path, tuned)
    assert len(points) == 3, "the fourth is the same function"
    rung = rungs(tuned)[0]
    design = design_of(tuned)
    at_rung = np.array([[lowest(run, rung) for run in runs] for runs in points])
    order = fit_responses(at_rung, coordinates(SPACE, design)).order
    kept_of_all = int(KEEP * len(design))
    for runs, of_point, best in zip(points, at_rung, order, strict=True):
        favoured = {*np.argsort(of_point)[:2], *best[:kept_of_all]}
        favoured -= {*np.flatnonzero(np.isinf(of_point))}
        for index, records in enumerate(runs):
            (end,) = (record for record in records if record["event"] == "end")
            assert (end["status"] == "finished") == (index in favoured)
            if end["status"] == "pruned":
                assert end["epoch"] == rung


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
    counts = [len(values) for values in Listening.known]
    assert min(counts) >= CELLS - 2
    assert len(counts) <= 3, "where no setting beyond the best one comes first"


class Low(optuna.samplers.RandomSampler):
    """A sampler that suggests a bad setting."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        return param_distribution.low


@pytest.fixture
def fits(monkeypatch):
    """The losses and the other arguments of each fit of a sweep."""
    known = []

    def fit(losses, settings, **options):
        known.append((losses, options))
        return fit_responses(losses, settings, **options)

    monkeypatch.setattr("lmzoo.lab.study.tuning.fit_responses", fit)
    return known


def test_the_fit_knows_every_run_that_was_stopped_early(tuned, fake_sweep, fits):
    """Also those whose settings the sampler suggested, far from the best ones."""
    assert fake_sweep(dataclasses.replace(tuned, sampler=Low(seed=0)), slots=3)
    losses, options = fits[-1]
    stopped = np.isnan(losses[:, CELLS - 1])
    assert stopped.any(), "some suggestion was stopped early"
    assert np.isfinite(options["early"][stopped, CELLS - 1]).all()


def test_with_one_field_the_best_is_among_the_settings(tuned, fake_sweep, fits):
    assert fake_sweep(tuned, slots=3)
    for _, options in fits:
        assert options.get("elsewhere") is None


def elsewhere(fits):
    """Return the other settings that the last fit knows."""
    _, options = fits[-1]
    return options["elsewhere"]


def test_with_two_fields_the_best_may_be_anywhere_in_the_space(tuned, fake_sweep, fits):
    second = {"recipe.clip": FloatRange(0.1, 10, log=True)}
    assert fake_sweep(dataclasses.replace(tuned, search=SPACE | second), slots=3)
    assert elsewhere(fits).shape == (CELLS - 1, 2)


def test_with_a_choice_the_best_may_have_any_of_its_values(tuned, fake_sweep, fits):
    second = {"recipe.batch": Choice((16, 32, 64))}
    assert fake_sweep(dataclasses.replace(tuned, search=SPACE | second), slots=3)
    found = elsewhere(fits)
    values = found[:, 1:]
    assert found.shape == (WITH_CHOICES, 4)
    assert (values.sum(1) == 1).all()
    assert {*values.argmax(1)} == {0, 1, 2}


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
    assert design == start_design(space, default, samples, seed)
    assert design[0] == default
    most = min(samples, max(CELLS, samples // 4)) - 1
    assert len(design) <= max(1, most)
    for index, setting in enumerate(design):
        assert setting not in design[:index]
        for path, value in setting.items():
            assert is_inside(value, space[path])


@given(SPACES, st.integers(1, 60), st.integers(0, 5))
def test_settings_are_in_the_order_of_their_distance_from_the_default(space, samples, seed):
    default = {path: first(bounds) for path, bounds in space.items()}
    x = coordinates(space, start_design(space, default, samples, seed))
    assert (np.abs(x) <= 1 + 1e-9).all()
    distance = ((x - x[0]) ** 2).sum(1)
    assert (np.diff(distance) >= -1e-9).all()


@given(SPACES, st.integers(CELLS, 60))
def test_fewer_samples_leave_out_the_last_settings(space, seed):
    default = {path: first(bounds) for path, bounds in space.items()}
    design = start_design(space, default, CELLS, seed)
    for samples in range(1, CELLS):
        assert start_design(space, default, samples, seed) == design[: max(1, samples - 1)]


FIVE_DECADES = {"lr": FloatRange(1e-4, 1e1, log=True)}


def rates_of(default):
    design = start_design(FIVE_DECADES, {"lr": default}, 5, 0)
    return [setting["lr"] for setting in design]


@pytest.mark.parametrize("default", [50.0, "50"])
def test_one_range_is_divided_into_equal_cells_of_which_the_last_is_left_out(default):
    """The default is outside of the range."""
    np.testing.assert_allclose(rates_of(default), 10.0 ** np.arange(-3.5, 0), rtol=1e-3)


def test_the_default_stands_for_the_middle_of_its_cell():
    assert sorted(rates_of(0.02))[2] == 0.02


WITH_NORM = {"lr": FloatRange(1e-4, 1.0, log=True), "norm": Choice(("a", "b"))}
orders = st.permutations([{"lr": rate, "norm": "a"} for rate in (0.001, 0.01, 0.1)])


@given(orders)
def test_nothing_is_beyond_a_setting_between_others(tried):
    best = {"lr": 0.01, "norm": "a"}
    assert beyond(WITH_NORM, tried, best) is None
    assert edges(WITH_NORM, tried, best) == []


@given(orders, st.sampled_from([(0.001, 1e-4), (0.1, 1.0)]))
def test_a_setting_beyond_is_asked_for_at_the_first_and_last_tried(tried, rate_and_bound):
    rate, bound = rate_and_bound
    best = {"lr": rate, "norm": "a"}
    new = {"lr": bound, "norm": "a"}
    assert edges(WITH_NORM, tried, best) == ["lr"]
    assert beyond(WITH_NORM, tried, best) == new
    assert beyond(WITH_NORM, [*tried, new], new) is None, "the range ends there"
    assert edges(WITH_NORM, [*tried, new], new) == ["lr"], "and the mark says so"


def test_several_ranges_are_covered():
    """Each half of each range has at least two settings; independent ones often fail."""
    space = {name: FloatRange(0.0, 1.0) for name in "abc"}
    for seed in range(20):
        design = start_design(space, dict.fromkeys("abc", 5.0), 32, seed)
        x = coordinates(space, design)
        assert len(design) == 7
        assert ((x < 0).sum(0) >= 2).all()
        assert ((x > 0).sum(0) >= 2).all()


def every_choice(rows, reference):
    """Call the choice of every compared point uncertain."""
    return [compared.point for compared in rows]


def test_further_settings_follow_the_runs_that_measure_again(tuned, fake_sweep, tmp_path):
    decided = dataclasses.replace(tuned, max_seeds=20, samples=CELLS)
    with pytest.MonkeyPatch.context() as patch:
        # Every point measures again, and every choice is uncertain.
        patch.setattr("lmzoo.lab.study.tuning.AGAIN", 1.0)
        patch.setattr("lmzoo.lab.study.planner.uncertain_choices", every_choice)
        assert fake_sweep(decided, slots=2)
    counts = collections.Counter(config["point"]["label"] for config in tune_configs(tmp_path))
    assert max(counts.values()) == decided.max_seeds


def test_a_setting_beyond_those_tried_stays_within_a_bound_of_many_digits():
    low = 0.0021213203
    space = {"recipe.lr": FloatRange(low, 0.0678822509, log=True)}
    tried = [{"recipe.lr": 2 * low}, {"recipe.lr": 1.2 * low}]
    assert beyond(space, tried, tried[1]) == {"recipe.lr": low}
