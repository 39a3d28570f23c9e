"""Points are tuned together: one start design, one rung, one fit, which the sampler knows."""

import collections
import math
from dataclasses import replace
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
    return replace(study, search=SPACE, samples=CELLS, epochs=12)


def tune_runs(path, study) -> list[list[list[dict]]]:
    """Return the records of the tune runs: points, settings in the order of the design."""
    records = outcome(path)
    configs = tune_configs(path)
    counts = collections.Counter(config["seed"] for config in configs)
    known = collections.defaultdict(dict)
    for config in configs:
        # A run that measures again has a seed of few runs.
        if counts[config["seed"]] > 2:
            setting = str(config["setting"])
            known[label_of(config)][setting] = records[config["run"]]
    runs = []
    design = list(map(str, design_of(study)))
    for point in study.points:
        if point.label in known:
            of_point = known[point.label]
            runs.append([of_point[setting] for setting in design])
    return runs


def design_of(study):
    return start_design(SPACE, DEFAULT, study.samples, study.seed)


def tune_configs(path) -> list[dict]:
    found = []
    for run in outcome(path):
        config = read_json(path / run / CONFIG)
        if config["stage"] == "tune":
            found.append(config)
    return found


def label_of(config) -> str:
    return config["point"]["label"]


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
    search = {"recipe.lr": Choice(rates)}
    choices = replace(tuned, search=search, samples=count)
    assert fake_sweep(choices, slots=2)
    tried = collections.defaultdict(set)
    for config in tune_configs(tmp_path):
        rate = config["setting"]["recipe.lr"]
        tried[label_of(config)].add(rate)
    # Two of the four points are the same function.
    assert len(tried) == 3
    for of_point in tried.values():
        assert of_point == set(rates)


def test_the_rung_keeps_what_a_point_favours_and_what_all_points_do(tuned, fake_sweep, tmp_path):
    assert fake_sweep(tuned, slots=3)
    points = tune_runs(tmp_path, tuned)
    assert len(points) == 3, "the fourth is the same function"
    rung = rungs(tuned)[0]
    design = design_of(tuned)
    at_rung = []
    for runs in points:
        at_rung.append([lowest(run, rung) for run in runs])
    fit = fit_responses(at_rung, coordinates(SPACE, design))
    kept_of_all = int(KEEP * len(design))
    for runs, losses, best in zip(points, at_rung, fit.order, strict=True):
        own_best = np.argsort(losses)[:2]
        favoured = set(own_best) | set(best[:kept_of_all])
        diverged = np.flatnonzero(np.isinf(losses))
        favoured.difference_update(diverged)
        for index, records in enumerate(runs):
            # Records are in the order of the names of their events.
            end, *_ = records
            assert (end["status"] == "finished") == (index in favoured)
            if end["status"] == "pruned":
                assert end["epoch"] == rung


class Listening(optuna.samplers.RandomSampler):
    """A random sampler that lists the losses it was given before each suggestion."""

    known: ClassVar[list[list[float]]] = []
    """Of all points, which copy the sampler."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        states = [optuna.trial.TrialState.COMPLETE]
        complete = study.get_trials(deepcopy=False, states=states)
        self.known.append([trial.value for trial in complete])
        return super().sample_independent(study, trial, param_name, param_distribution)


def test_the_sampler_is_asked_by_default_with_the_losses_of_the_fit(tuned, fake_sweep):
    Listening.known.clear()
    listening = replace(tuned, sampler=Listening(seed=0))
    assert fake_sweep(listening, slots=3)
    counts = [len(values) for values in Listening.known]
    # The start design has four settings, of which the highest rate diverges.
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
    low = replace(tuned, sampler=Low(seed=0))
    assert fake_sweep(low, slots=3)
    losses, options = fits[-1]
    suggested = CELLS - 1
    stopped = np.isnan(losses[:, suggested])
    assert stopped.any(), "some suggestion was stopped early"
    early = options["early"][:, suggested]
    assert np.isfinite(early[stopped]).all()


def test_with_one_field_the_best_is_among_the_settings(tuned, fake_sweep, fits):
    assert fake_sweep(tuned, slots=3)
    for _, options in fits:
        assert options.get("elsewhere") is None


@pytest.fixture
def elsewhere(tuned, fake_sweep, fits):
    """Return a function that adds a field, and returns the other settings that the fit knows."""

    def settings(**field):
        second = {f"recipe.{name}": bounds for name, bounds in field.items()}
        both = replace(tuned, search=SPACE | second)
        assert fake_sweep(both, slots=3)
        _, options = fits[-1]
        return options["elsewhere"]

    return settings


def test_with_two_fields_the_best_may_be_anywhere_in_the_space(elsewhere):
    found = elsewhere(clip=FloatRange(0.1, 10, log=True))
    assert found.shape == (CELLS - 1, 2)


def test_with_a_choice_the_best_may_have_any_of_its_values(elsewhere):
    found = elsewhere(batch=Choice((16, 32, 64)))
    values = found[:, 1:]
    assert found.shape == (WITH_CHOICES, 4)
    assert (values.sum(1) == 1).all()
    assert set(values.argmax(1)) == {0, 1, 2}


SMALL = st.floats(1e-5, 1e-2)
LARGE = st.floats(0.1, 10)
FEW = st.integers(1, 8)
MANY = st.integers(32, 256)
RANGES = st.one_of(
    st.builds(FloatRange, SMALL, LARGE, st.booleans()),
    st.builds(IntRange, FEW, MANY, st.booleans()),
    st.just(Choice(("default", "orthogonal", "normal"))),
)
NAMES = st.sampled_from("abc")
SPACES = st.dictionaries(NAMES, RANGES, min_size=1)
SAMPLES = st.integers(1, 60)
SEEDS = st.integers(0, 5)


def default_of(space):
    """Return the setting of the first value of each range."""
    setting = {}
    for path, bounds in space.items():
        if isinstance(bounds, Choice):
            setting[path] = bounds.values[0]
        else:
            setting[path] = bounds.low
    return setting


def is_inside(value, bounds):
    if isinstance(bounds, Choice):
        return value in bounds.values
    return bounds.low <= value <= bounds.high


@given(SPACES, SAMPLES, SEEDS)
def test_settings_are_different_and_inside_and_the_default_is_first(space, samples, seed):
    default = default_of(space)
    design = start_design(space, default, samples, seed)
    assert design == start_design(space, default, samples, seed)
    assert design[0] == default
    # The last setting is left out, or those that leave the sampler one sample.
    of_budget = max(CELLS, samples // 4)
    most = min(samples, of_budget) - 1
    assert len(design) <= max(1, most)
    for index, setting in enumerate(design):
        assert setting not in design[:index]
        for path, value in setting.items():
            assert is_inside(value, space[path])


@given(SPACES, SAMPLES, SEEDS)
def test_settings_are_in_the_order_of_their_distance_from_the_default(space, samples, seed):
    design = start_design(space, default_of(space), samples, seed)
    x = coordinates(space, design)
    assert np.abs(x).max() <= 1 + 1e-9
    distance = np.linalg.norm(x - x[0], axis=1)
    assert (np.diff(distance) >= -1e-9).all()


@given(SPACES, st.integers(CELLS, 60))
def test_fewer_samples_leave_out_the_last_settings(space, seed):
    default = default_of(space)
    design = start_design(space, default, CELLS, seed)
    for samples in range(1, CELLS):
        fewer = start_design(space, default, samples, seed)
        count = max(1, samples - 1)
        assert fewer == design[:count]


FIVE_DECADES = {"lr": FloatRange(1e-4, 1e1, log=True)}


def rates_of(default):
    design = start_design(FIVE_DECADES, {"lr": default}, 5, 0)
    return [setting["lr"] for setting in design]


@pytest.mark.parametrize("default", [50.0, "50"])
def test_one_range_is_divided_into_equal_cells_of_which_the_last_is_left_out(default):
    """The default is outside of the range."""
    # Of the decades from 1e-4 to 1; that from 1 to 10 is left out.
    middles = 10.0 ** np.arange(-3.5, 0)
    np.testing.assert_allclose(rates_of(default), middles, rtol=1e-3)


def test_the_default_stands_for_the_middle_of_its_cell():
    assert sorted(rates_of(0.02))[2] == 0.02


WITH_NORM = {"lr": FloatRange(1e-4, 1.0, log=True), "norm": Choice(("a", "b"))}


def at(rate):
    return {"lr": rate, "norm": "a"}


orders = st.permutations([at(0.001), at(0.01), at(0.1)])


@given(orders)
def test_nothing_is_beyond_a_setting_between_others(tried):
    best = at(0.01)
    assert beyond(WITH_NORM, tried, best) is None
    assert edges(WITH_NORM, tried, best) == []


@given(orders, st.sampled_from([(0.001, 1e-4), (0.1, 1.0)]))
def test_a_setting_beyond_is_asked_for_at_the_first_and_last_tried(tried, rate_and_bound):
    rate, bound = rate_and_bound
    best = at(rate)
    new = at(bound)
    assert edges(WITH_NORM, tried, best) == ["lr"]
    assert beyond(WITH_NORM, tried, best) == new
    tried.append(new)
    assert beyond(WITH_NORM, tried, new) is None, "the range ends there"
    assert edges(WITH_NORM, tried, new) == ["lr"], "and the mark says so"


def test_several_ranges_are_covered():
    """Each half of each range has at least two settings; independent ones often fail."""
    space = dict.fromkeys("abc", FloatRange(0.0, 1.0))
    default = dict.fromkeys("abc", 5.0)
    for seed in range(20):
        # A quarter of the samples without the last one: seven settings.
        design = start_design(space, default, 32, seed)
        x = coordinates(space, design)
        lower = np.sum(x < 0, axis=0)
        upper = np.sum(x > 0, axis=0)
        assert len(design) == 7
        assert min(lower) >= 2
        assert min(upper) >= 2


def every_choice(rows, reference):
    """Call the choice of every compared point uncertain."""
    return [compared.point for compared in rows]


def test_further_settings_follow_the_runs_that_measure_again(tuned, fake_sweep, tmp_path):
    decided = replace(tuned, max_seeds=20, samples=CELLS)
    with pytest.MonkeyPatch.context() as patch:
        # Every point measures again, and every choice is uncertain.
        patch.setattr("lmzoo.lab.study.tuning.AGAIN", 1.0)
        patch.setattr("lmzoo.lab.study.planner.uncertain_choices", every_choice)
        assert fake_sweep(decided, slots=2)
    labels = map(label_of, tune_configs(tmp_path))
    counts = collections.Counter(labels)
    assert max(counts.values()) == decided.max_seeds


def test_a_setting_beyond_those_tried_stays_within_a_bound_of_many_digits():
    low = 0.0021213203
    space = {"recipe.lr": FloatRange(low, 0.0678822509, log=True)}
    best = {"recipe.lr": 1.2 * low}
    tried = [{"recipe.lr": 2 * low}, best]
    assert beyond(space, tried, best) == {"recipe.lr": low}
