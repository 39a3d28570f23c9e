"""The points of a study are tuned together: one rung, one fit, results shared with the sampler."""

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
import optuna
import pytest

from lmzoo.search_space import FloatRange
from lmzoo.statistics.responses import fit_responses
from lmzoo.store.records import CONFIG, STUDY, read_json
from lmzoo.study.design import SIZE, coordinates, start_design
from lmzoo.study.pruners import KEEP, rung_epoch
from tests.sweep.fake_runs import open_fake_run
from tests.sweep.local_sweep import outcome, sweep

SPACE = {"recipe.lr": FloatRange(1e-3, 2e-1, log=True)}
DEFAULT = {"recipe.lr": 1e-2}


@pytest.fixture
def tuned(study):
    """Four points with the start design, whose highest rate diverges, and a rung at epoch 2."""
    return dataclasses.replace(study, search=SPACE, samples=SIZE, epochs=12)


@pytest.fixture
def fake_sweep(corpus, corpus_fields, tmp_path):
    return functools.partial(
        sweep, corpus=corpus, fields=corpus_fields, load_run=open_fake_run, path=tmp_path
    )


def tune_runs(path, study) -> list[list[list[dict]]]:
    """Return the records of the tune runs: points, settings in the order of the design."""
    design, records = start_design(SPACE, DEFAULT, study.samples, study.seed), outcome(path)
    configs = [read_json(path / run / CONFIG) for run in records]
    return [
        [
            records[config["run"]]
            for setting in design
            for config in configs
            if config["stage"] == "tune"
            and config["point"]["label"] == point.label
            and config["setting"] == setting
        ]
        for point in study.points
        if any(config["point"]["label"] == point.label for config in configs)
    ]


def losses(points, status: str, last: int) -> np.ndarray:
    """Return the lowest loss of each run up to an epoch: infinity if diverged, NaN if pruned."""

    def loss(records) -> float:
        curve = [r["valid_token"] for r in records if r["event"] == "epoch" and r["epoch"] <= last]
        end = next(r for r in records if r["event"] == "end")
        if status != "rung" and end["status"] == "pruned":
            return math.nan
        return math.inf if None in curve else min(curve)

    return np.array([[loss(records) for records in settings] for settings in points])


def test_the_best_settings_of_each_point_pass_the_rung(tuned, fake_sweep, tmp_path):
    assert fake_sweep(tuned, slots=3)
    points, rung = tune_runs(tmp_path, tuned), rung_epoch(tuned.epochs)
    design = start_design(SPACE, DEFAULT, tuned.samples, tuned.seed)
    order = fit_responses(losses(points, "rung", rung), coordinates(SPACE, design)).order
    assert len(points) == 3, "the fourth is the same function"
    for settings, best in zip(points, order, strict=True):
        ends = [next(r for r in records if r["event"] == "end") for records in settings]
        passed = {i for i, end in enumerate(ends) if end["status"] == "finished"}
        assert passed == set(best[: math.ceil(KEEP * SIZE)].tolist())
        assert all(end["epoch"] == rung for end in ends if end["status"] == "pruned")


def test_the_fit_to_all_points_chooses(tuned, fake_sweep, tmp_path):
    assert fake_sweep(tuned, slots=3)
    design = start_design(SPACE, DEFAULT, tuned.samples, tuned.seed)
    final = losses(tune_runs(tmp_path, tuned), "final", tuned.epochs)
    fit = fit_responses(final, coordinates(SPACE, design))
    study = read_json(tmp_path / STUDY)
    for point, best, sd in zip(study["points"][:3], fit.best, fit.tuning_sd, strict=True):
        chosen = study["chosen"][point["id"]]
        assert chosen["setting"] == design[best]
        assert chosen["tuning_sd"] == pytest.approx(sd, rel=0.05)


class Listening(optuna.samplers.RandomSampler):
    """A random sampler that lists the losses it was given before each suggestion."""

    known: ClassVar[list[list[float]]] = []
    """Of all points, which copy the sampler."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        complete = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
        self.known.append([t.values[0] for t in complete])
        return super().sample_independent(study, trial, param_name, param_distribution)


def test_the_sampler_is_asked_with_the_results_of_all_points(tuned, fake_sweep):
    Listening.known.clear()
    sampler = Listening(seed=0)
    study = dataclasses.replace(tuned, samples=SIZE + 2, sampler=sampler, pruner="none")
    assert fake_sweep(study, slots=3)
    others = 2 * (SIZE - 1)  # the highest rate diverges
    # The start design is asked for, too, and replaced.
    assert sum(len(values) >= SIZE + others for values in Listening.known) == 3 * 2


def test_without_a_rung_nothing_is_pruned(tuned, fake_sweep, tmp_path):
    assert fake_sweep(dataclasses.replace(tuned, epochs=1), slots=3)
    assert rung_epoch(1) == 0
    ends = [r for records in outcome(tmp_path).values() for r in records if r["event"] == "end"]
    assert {end["status"] for end in ends} == {"finished"}
