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
from tests.cases import rows
from tests.lab.statistics.normal_draws import normal

PINS = Path(__file__).with_name("pins.json")
RNG = np.random.default_rng


def study() -> np.ndarray:
    """Return losses (12, 6): one point is noisy, one exact; some runs are missing or diverged."""
    own = 0.01 * normal(0, 12, 6)
    of_seeds = 0.05 * normal(1, 6)
    means = np.linspace(0, 0.05, 12)
    x = own + of_seeds + means[:, None]
    x[2] += 0.2 * normal(2, 6)
    # Exact.
    x[3] = 0.02
    # Missing, diverged, and one run only.
    x[4, 4:] = np.nan
    x[5, 1] = np.nan
    x[6, 0] = np.inf
    x[7, 1:] = np.nan
    return x


def expected_noise() -> np.ndarray:
    x = study()
    x[np.isinf(x)] = np.nan
    return seed_noise(x).expected()


def long_reference() -> np.ndarray:
    """Return losses whose reference is noisy and has three times as many seeds."""
    own = 0.01 * normal(3, 8, 12)
    of_seeds = 0.1 * normal(4, 12)
    x = own + of_seeds
    x[0] += 0.2 * normal(5, 12)
    x[1:, 4:] = np.nan
    return x


def numbers_of_outliers() -> list[int]:
    """Return how many variances, up to 60 times the usual one, are not shared."""
    found = []
    rising = np.geomspace(2, 60, 80)
    is_usual = np.arange(100) < 20
    for freedom in (1.0, 2.0, 3.0, 5.0):
        usual = RNG(16).chisquare(freedom, 20) / freedom
        variances = np.append(usual, rising)
        of_each = np.full(100, freedom)
        _, _, outlier = posterior(variances, of_each, is_usual)
        found.append(outlier.sum())
    return found


def half_quiet() -> np.ndarray:
    """Return the expected variances of points of which nearly half vary hardly: the prior ends."""
    variances = np.array(rows("lab/statistics/cases.toml", "half_quiet"))
    freedom = np.full(11, 4.0)
    values, weight, _ = posterior(variances, freedom)
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
        first = self.x[:, 0]
        best = 0.3 * normal(7, 7, 1, fields)
        noise = 0.02 * normal(8, 7, 9)
        squares = (self.x - best) ** 2
        self.y = 2 + 0.3 * squares.sum(-1) + noise
        # A point with an optimum of its own.
        self.y[3] = 2 + 0.8 * (first + 0.8) ** 2
        self.options: dict[str, Any] = {}
        if kind == "cliff":
            self.y[:2, first > 0.3] += 3
            self.y[4, :2] = np.inf
            self.y[5, 3:5] = np.nan
        elif kind == "early":
            self.options["early"] = self.y + 0.5 + 0.1 * first
            self.y[:, 6:] = np.nan
            self.y[0, 5:] = np.nan
        elif kind == "repeats":
            self.repeat()

    def repeat(self) -> None:
        """Add three runs of settings of each point, with other seeds."""
        settings = RNG(9).integers(0, 9, (7, 3))
        losses = 2.05 + 0.02 * normal(10, 7, 3)
        of_all = np.tile(self.x, (7, 1, 1))
        self.x = np.append(of_all, self.x[settings], 1)
        self.y = np.append(self.y, losses, 1)
        seeds = [0] * 9 + [1, 1, 2]
        self.options["seeds"] = np.tile(seeds, (7, 1))
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
        found = responses.fit_responses(tuning.y, tuning.x, **tuning.options)
        return found, bounds

    # So many draws that their last digits, which depend on the machine, do not count.
    monkeypatch.setattr(responses, "DRAWS", 4000)
    monkeypatch.setattr(responses.optimize, "minimize", minimize)
    return fit


SIX = spend(looks(3, 6))
SD = np.linspace(0, 0.02, 12)
LOSSES = study()
FEW = LOSSES[:2]
INCOMPLETE = LOSSES[4:7]
FITS = {
    "outliers": numbers_of_outliers,
    "half quiet": half_quiet,
    "expected noise": expected_noise,
    "contrasts": lambda: contrasts(LOSSES, 0, paired=True)[:7],
    "contrasts with tuning": lambda: contrasts(LOSSES, 1, SD, paired=True).half(),
    "unpaired contrasts": lambda: contrasts(LOSSES, 0, SD)[:7],
    "Welch's contrasts": lambda: contrasts(INCOMPLETE, 1, 0.01, paired=False)[:7],
    "long reference": lambda: contrasts(long_reference(), 0).half(),
    "intervals": lambda: point_intervals(LOSSES),
    "ranks": lambda: rank_intervals(LOSSES, SD),
    "plan": lambda: planned_seeds(LOSSES, 0, 0.02, tuning_sd=SD / 4),
    "plan of few": lambda: planned_seeds(FEW, 0, 0.02, paired=False, count=3),
    "verdicts": lambda: compared(LOSSES, 0, looks=SIX, tuning_sd=SD / 4)[1:16],
}


def numbers(result: Any) -> list[float]:
    """Return all numbers of a result with the digits that a pin has."""
    found = []
    if isinstance(result, list | tuple):
        for part in result:
            found.extend(numbers(part))
    else:
        for number in np.ravel(result):
            found.append(float(f"{number:.6g}"))
    return found


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
