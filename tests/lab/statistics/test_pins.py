"""Numbers of the fits that share information among points, which no short formula gives.

They change only with the method. A failing test prints the correct line of `pins.json`.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmzoo.lab.statistics import responses
from lmzoo.lab.statistics.compared import compared, looks, spend
from lmzoo.lab.statistics.contrasts import contrasts, point_intervals, rank_intervals
from lmzoo.lab.statistics.noise import posterior, seed_noise
from lmzoo.lab.statistics.power import planned_seeds

PINS = Path(__file__).with_name("pins.json")
RNG = np.random.default_rng


def study() -> np.ndarray:
    """Return losses (12, 6): one point is noisy, one exact; some runs are missing or diverged."""
    x = 0.01 * RNG(0).normal(size=(12, 6)) + 0.05 * RNG(1).normal(size=6)
    x += np.linspace(0, 0.05, 12)[:, None]
    x[2] += 0.2 * RNG(2).normal(size=6)
    x[3] = 0.02
    x[4, 4:] = np.nan
    x[5, 1] = np.nan
    x[6, 0] = np.inf
    x[7, 1:] = np.nan
    return x


def without_infinity() -> np.ndarray:
    return np.where(np.isfinite(study()), study(), np.nan)


def long_reference() -> np.ndarray:
    """Return losses whose reference is noisy and has three times as many seeds."""
    x = 0.01 * RNG(3).normal(size=(8, 12)) + 0.1 * RNG(4).normal(size=12)
    x[0] += 0.2 * RNG(5).normal(size=12)
    x[1:, 4:] = np.nan
    return x


def numbers_of_outliers() -> list[int]:
    """Return how many variances, up to 60 times the usual one, are not shared."""
    found = []
    for freedom in (1.0, 2.0, 3.0, 5.0):
        usual = RNG(16).chisquare(freedom, 20) / freedom
        variances = np.append(usual, np.geomspace(2, 60, 80))
        is_usual = np.arange(100) < 20
        _, _, outlier = posterior(variances, np.full(100, freedom), is_usual)
        found.append(outlier.sum())
    return found


def half_quiet() -> np.ndarray:
    """Return the expected variances of points of which nearly half vary hardly: the prior ends."""
    variances = np.array([2e-3] * 5 + [1, 0.8, 1.2, 1.5, 1.1, 0.9])
    values, weight, _ = posterior(variances, np.full(11, 4.0))
    return weight @ values


HYPER = responses.PRIOR + np.array([0.3, -0.2, 0.1, 0.2, -1.0])
"""Given hyperparameters: the optimiser depends in its last digits on the machine."""


class Tuning:
    """Losses `y` of settings `x`: parabolas, and what a kind of study adds."""

    def __init__(self, kind: str) -> None:
        fields = 1
        if kind == "fields":
            fields = 2
        self.x = RNG(6).uniform(-1, 1, (9, fields))
        best = 0.3 * RNG(7).normal(size=(7, 1, fields))
        noise = 0.02 * RNG(8).normal(size=(7, 9))
        self.y = 2 + 0.3 * ((self.x - best) ** 2).sum(-1) + noise
        self.y[3] = 2 + 0.8 * (self.x[:, 0] + 0.8) ** 2
        self.options: dict[str, Any] = {}
        if kind == "cliff":
            self.y[:2, self.x[:, 0] > 0.3] += 3
            self.y[4, :2] = np.inf
            self.y[5, 3:5] = np.nan
        elif kind == "early":
            self.options["early"] = self.y + 0.5 + 0.1 * self.x[:, 0]
            self.y[:, 6:] = np.nan
            self.y[0, 5:] = np.nan
        elif kind == "repeats":
            self.repeat()

    def repeat(self) -> None:
        """Add three runs of settings of each point, with other seeds."""
        again = self.x[RNG(9).integers(0, 9, (7, 3))]
        losses = 2.05 + 0.02 * RNG(10).normal(size=(7, 3))
        self.x = np.concatenate([[self.x] * 7, again], 1)
        self.y = np.concatenate([self.y, losses], 1)
        self.options["seeds"] = np.array([[0] * 9 + [1, 1, 2]] * 7)
        self.options["shared"] = 7


KINDS = ("plain", "fields", "cliff", "early", "repeats", "many")


@pytest.fixture
def fit_of(monkeypatch):
    """Return a function that fits a kind of study, and the bounds that its optimiser saw."""
    bounds = []

    def minimize(bound, h, read, **_):
        bounds.append(bound(h, *read))
        bounds.append(bound(HYPER, *read))
        return SimpleNamespace(x=HYPER)

    def fit(kind: str) -> tuple[Any, list[float]]:
        if kind == "many":
            monkeypatch.setattr(responses, "MOST", 5)
            monkeypatch.setattr(responses, "SETTINGS", 6)
        tuning = Tuning(kind)
        return responses.fit_responses(tuning.y, tuning.x, **tuning.options), bounds

    # So many draws that their last digits, which depend on the machine, do not count.
    monkeypatch.setattr(responses, "DRAWS", 4000)
    monkeypatch.setattr(responses.optimize, "minimize", minimize)
    return fit


SIX = spend(looks(3, 6))
SD = np.linspace(0, 0.02, 12)
FITS = {
    "outliers": numbers_of_outliers,
    "half quiet": half_quiet,
    "expected noise": lambda: seed_noise(without_infinity()).expected(),
    "contrasts": lambda: contrasts(study(), 0, paired=True)[:7],
    "contrasts with tuning": lambda: contrasts(study(), 1, SD, paired=True).half(),
    "unpaired contrasts": lambda: contrasts(study(), 0, SD)[:7],
    "Welch's contrasts": lambda: contrasts(study()[4:7], 1, 0.01, paired=False)[:7],
    "long reference": lambda: contrasts(long_reference(), 0).half(),
    "intervals": lambda: point_intervals(study()),
    "ranks": lambda: rank_intervals(study(), SD),
    "plan": lambda: planned_seeds(study(), 0, 0.02, tuning_sd=SD / 4),
    "plan of few": lambda: planned_seeds(study()[:2], 0, 0.02, paired=False, count=3),
    "verdicts": lambda: compared(study(), 0, looks=SIX, tuning_sd=SD / 4)[1:16],
}


def numbers(result: Any) -> list[float]:
    if isinstance(result, list | tuple):
        return [number for part in result for number in numbers(part)]
    return [float(f"{number:.6g}") for number in np.ravel(result)]


def assert_pinned(name: str, result: Any, rel: float = 1e-4, abs: float = 1e-9) -> None:
    found = numbers(result)
    pinned = json.loads(PINS.read_text()).get(name)
    line = f"  {json.dumps(name)}: {json.dumps(found)},"
    assert found == pytest.approx(pinned, rel=rel, abs=abs, nan_ok=True), line


@pytest.mark.parametrize("name", FITS)
def test_fits_match_the_pins(name):
    assert_pinned(name, FITS[name]())


@pytest.mark.parametrize("kind", KINDS)
def test_responses_match_the_pins(kind, fit_of):
    fit, bounds = fit_of(kind)
    # Runs of one setting are in any order.
    chosen = np.column_stack([fit.order, fit.challenger])
    losses = np.take_along_axis(fit.mean, chosen, 1)
    assert_pinned(f"responses: {kind}", [bounds, fit.mean, losses])


@pytest.mark.parametrize("kind", KINDS)
def test_choices_match_the_pins(kind, fit_of):
    fit, _ = fit_of(kind)
    # Drawn settings: scipy 1.18 and numpy 2.5 move one by 0.11.
    assert_pinned(f"choices: {kind}", [fit.regret, fit.tuning_sd], rel=0.2, abs=2e-4)
